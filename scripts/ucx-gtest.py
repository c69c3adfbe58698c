#!/usr/bin/env python3
"""ucx-gtest.py DIR LIBRARY EXCLUDE FILTER: runs the suite that ucx-gtest.sh has built, one class of tests after the other.

A test that crashes or hangs ends its process: it counts as failed, and those behind it run in another one.
"""
import concurrent.futures
import os
import re
import subprocess
import sys

WORK, LIBRARY, EXCLUDE, FILTER = sys.argv[1:5]
GTEST = os.path.join(WORK, "ucx/b/test/gtest/gtest")
TRANSPORTS = ("ivshmem", "posix")
SECONDS = int(os.environ.get("UCX_GTEST_SECONDS", "120"))
REGION = f"/dev/shm/nearmetal-ucx-gtest-{os.getpid()}"
LINE = re.compile(r"^\[ *(RUN|OK|FAILED|SKIP) *\] (\S+)", re.M)


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
    """The result of each of these tests."""
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
        for what, name in LINE.findall(out):
            name = name.rstrip(",")
            if what == "SKIP":
                # UCX's own word: behind it stands why, and the test ends with OK.
                skipped = True
            elif what == "RUN":
                begun, skipped = name, False
            elif name == begun:
                results[name] = "failed" if what == "FAILED" else "skipped" if skipped else "ok"
                begun = None
        # Many tests may take longer together than one may alone.
        late = begun if end == "hung" and not alone else None
        if begun and not late:
            results[begun] = end
        if not late and not any(n in results for n in left):
            results[alone or left[0]] = end
        alone = late
        left = [n for n in left if n not in results]
    return results


def run_all(tl):
    """The results of all tests of that transport, by their names without it. What they print goes to TRANSPORT.log."""
    results = {}
    with open(os.path.join(WORK, tl + ".log"), "w", encoding="utf-8") as log:
        for names in tests(tl).values():
            got = run(tl, names, log)
            results.update({name[len(tl) + 1:]: result for name, result in got.items()})
            log.flush()
    return results


def main():
    bench = os.path.join(os.path.dirname(LIBRARY), "../test/bench/fabric/c/ucp_bench")
    subprocess.run([bench, "region", REGION, "4096"], check=True)
    try:
        with concurrent.futures.ThreadPoolExecutor() as pool:
            results = dict(zip(TRANSPORTS, pool.map(run_all, TRANSPORTS)))
    finally:
        os.unlink(REGION)
    with open(EXCLUDE, encoding="utf-8") as f:
        excluded = [line.split("#")[0].strip() for line in f if line.split("#")[0].strip()]
    print("transport   run  failed  skipped")
    for tl, of in results.items():
        count = list(of.values()).count
        failed = len(of) - count("ok") - count("skipped")
        print(f"{tl:9} {len(of) - count('skipped'):5} {failed:7} {count('skipped'):8}")
    red = 0
    for name, result in results["ivshmem"].items():
        other = results["posix"].get(name, "not there")
        if result == "ok" or result == other:
            continue
        known = result != "skipped" and any(re.fullmatch(x, name) for x in excluded)
        red += result != "skipped" and other == "ok" and not known
        print(f"{name}: {result}, posix {other}{', as is known' if known else ''}")
    return 1 if red else 0


sys.exit(main())
