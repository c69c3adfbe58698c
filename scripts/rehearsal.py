"""rehearsal.py DIR RELEASE...: the page measurements/rehearsal.md from the logs of scripts/rehearse.sh."""

import pathlib
import sys


def rows(path):
    """The lines of a file of tab-separated values; none if it is not there."""
    return [line.split("\t") for line in path.read_text().splitlines()] if path.exists() else []


def minutes(seconds):
    return f"{int(seconds) // 60} min {int(seconds) % 60:02d} s"


def megabytes(n):
    return f"{int(n) / 1e6:.1f}"


def table(head, lines):
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for line in lines:
        print("| " + " | ".join(line) + " |")
    print()


def failed(path):
    """The tests of Go that failed, without their parts, in the order of the output."""
    lines = path.read_text(errors="replace").splitlines() if path.exists() else []
    return [line.split()[2] for line in lines if line.startswith("--- FAIL: ")]


def release(log):
    versions = (log / "versions").read_text().splitlines() if (log / "versions").exists() else []
    system, kernel, cpus, *tools = versions + [""] * (3 - len(versions))
    print(f"## {system or log.name}\n")
    print(f"{(log / 'date').read_text().strip()}, commit {(log / 'commit').read_text().strip()}, {cpus} CPUs, "
          f"kernel {kernel}. " + "; ".join(tools) + ".\n")
    table(["command", "took", "result"], [[f"`{c}`", minutes(s), r] for c, s, r in rows(log / "steps")])
    parts = rows(log / "parts")
    if parts:
        print("The parts of `make test`:\n")
        table(["part", "took", "CPU", "result"], [[n, minutes(s), f"{cpu} s", r] for n, s, cpu, r in parts])
    bad = failed(log / "output")
    if bad:
        print("Red: " + ", ".join(bad) + ".\n")
    print("What was fetched:\n")
    lines, total, command = [], {}, ""
    for row in rows(log / "fetched"):
        if row[0] == "#":
            command = row[1]
            continue
        kind, seconds, size, name = row
        words = name.split()
        short = name if len(words) <= 4 else f"{' '.join(words[:3])} and {len(words) - 3} more"
        lines.append([f"`{command}`", kind, short, megabytes(size), f"{seconds} s"])
        total[kind] = total.get(kind, 0) + int(size)
    table(["command", "registry", "what", "MB", "took"], lines)
    print("Sum: " + ", ".join(f"{kind} {megabytes(n)} MB" for kind, n in total.items()) + ".\n")


def main(directory, *releases):
    print("# Rehearsal\n")
    print("For those who cut a release or doubt the README. `make rehearse` runs the README's two commands")
    print("on a bare Debian: git, make and ca-certificates, empty caches, a fresh clone. This page is its")
    print("last report, written by scripts/rehearsal.py. The time to fetch includes the time to install.\n")
    for name in releases:
        release(pathlib.Path(directory) / name)


if __name__ == "__main__":
    main(*sys.argv[1:])
