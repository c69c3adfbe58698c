#!/usr/bin/env python3
"""ucx-gtest.py DIR LIBRARY EXCLUDE FILTER: runs the suite that ucx-gtest.sh has built, one class of tests after the other.

A test that crashes or hangs ends its process: it counts as failed, and those behind it run in another one. What has run is
kept in DIR/results.json. With UCX_GTEST_RESUME=1 that is not run again, so that runs in parts make one table.
"""
import concurrent.futures
import fcntl
import json
import os
import re
import subprocess
import sys

WORK, LIBRARY, EXCLUDE, FILTER = sys.argv[1:5]
GTEST = os.path.join(WORK, "ucx/b/test/gtest/gtest")
KEPT = os.path.join(WORK, "results.json")
TRANSPORTS = ("ivshmem", "posix")
SECONDS = int(os.environ.get("UCX_GTEST_SECONDS", "120"))
REGION = f"/dev/shm/nearmetal-ucx-gtest-{os.getpid()}"
LINE = re.compile(r"^\[ *(RUN|OK|FAILED|SKIP) *\] ([^\s,]+)(?:.*\((\d+) ms\))?", re.M)


def environment(tl):
    env = dict(os.environ, UCX_HANDLE_ERRORS="bt", GTEST_COLOR="no")
    for name in ("UCX_TLS", "LD_PRELOAD", "NEARMETAL_REGION"):
        env.pop(name, None)
    if tl == "ivshmem":
        env.update(LD_PRELOAD=LIBRARY, NEARMETAL_REGION=REGION, NEARMETAL_UCX_NEAR="1", FI_IVSHMEM_RANKS="512")
    return env


def tests(tl):
    """The names of all tests of that transport, by class."""
    out = subprocess.run([GTEST, "--gtest_list_tests", "--gtest_filter=" + ":".join(f"{tl}/{f}" for f in FILTER.split(":"))], env=environment(tl),
                         capture_output=True, text=True, check=True).stdout
    classes, current = {}, None
    for line in out.splitlines():
        if line.startswith(f"{tl}/"):
            current = line.split()[0]
        elif line.startswith("  ") and current:
            classes.setdefault(current, []).append(current + line.split()[0])
    return classes


def run(tl, names, log):
    """Runs these tests. Keeps the result of each, with its time in ms."""
    results, left, alone = {}, list(names), None
    while left:
        try:
            out = subprocess.run([GTEST, "--gtest_filter=" + (alone or ":".join(left))], env=environment(tl), timeout=SECONDS,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace").stdout
            end = "crashed"
        except subprocess.TimeoutExpired as e:
            out, end = (e.stdout or b"").decode(errors="replace"), "hung"
        log.write(out)
        begun, skipped = None, False
        for what, name, ms in LINE.findall(out):
            if what == "SKIP":
                # UCX's own word: behind it stands why, and the test ends with OK.
                skipped = True
            elif what == "RUN":
                begun, skipped = name, False
            elif name == begun:
                results[name] = ("failed" if what == "FAILED" else "skipped" if skipped else "ok", int(ms or 0))
                begun = None
        # Many tests may take longer together than one may alone.
        late = begun if end == "hung" and not alone else None
        if begun and not late:
            results[begun] = (end, SECONDS * 1000 if end == "hung" else 0)
        if not late and not any(n in results for n in left):
            results[alone or left[0]] = (end, 0)
        alone = late
        left = [n for n in left if n not in results]
        keep(tl, results)


def keep(tl, results):
    """Adds results to those that are kept: of another run at the same time, too."""
    with open(KEPT, "a+", encoding="utf-8") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        f.seek(0)
        text = f.read()
        all_of = json.loads(text or "{}")
        for name, result in results.items():
            all_of.setdefault(name[len(tl) + 1:], {})[tl] = result
        f.truncate(0)
        json.dump(all_of, f)


def kept():
    """What has run: by the test's name without its transport, and by transport."""
    try:
        with open(KEPT, encoding="utf-8") as f:
            fcntl.flock(f, fcntl.LOCK_SH)
            return json.load(f)
    except FileNotFoundError:
        return {}


def run_all(tl):
    """Runs all tests of that transport. What they print goes to TRANSPORT.log."""
    with open(os.path.join(WORK, tl + ".log"), "a", encoding="utf-8") as log:
        for names in tests(tl).values():
            run(tl, [n for n in names if tl not in kept().get(n[len(tl) + 1:], {})], log)
            log.flush()


def table(excluded):
    """Prints what ran, and what differs. Returns how many failed over ivshmem alone and are not known."""
    print("transport   run  failed  hung  skipped")
    for tl in TRANSPORTS:
        of = [results[tl][0] for results in kept().values() if tl in results]
        print(f"{tl:9} {len(of) - of.count('skipped'):5} {of.count('failed') + of.count('crashed'):7} {of.count('hung'):5} {of.count('skipped'):8}")
    red = 0
    for name, results in sorted(kept().items()):
        got, other = (results.get(tl, ["not run"])[0] for tl in TRANSPORTS)
        if got in ("ok", other):
            continue
        bad = got not in ("skipped", "not run")
        known = bad and any(re.fullmatch(x, name) for x in excluded)
        red += bad and other in ("ok", "skipped") and not known
        print(f"{name}: {got}, posix {other}{', as is known' if known else ''}")
    return red


def main():
    if os.environ.get("UCX_GTEST_RESUME") != "1" and os.path.exists(KEPT):
        os.unlink(KEPT)
    bench = os.path.join(os.path.dirname(LIBRARY), "../test/bench/fabric/c/ucp_bench")
    subprocess.run([bench, "region", REGION, "4096"], check=True)
    try:
        with concurrent.futures.ThreadPoolExecutor() as pool:
            list(pool.map(run_all, TRANSPORTS))
    finally:
        os.unlink(REGION)
    with open(EXCLUDE, encoding="utf-8") as f:
        excluded = [line.split("#")[0].strip() for line in f if line.split("#")[0].strip()]
    return 1 if table(excluded) else 0


sys.exit(main())
