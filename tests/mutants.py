#!/usr/bin/env python3
"""Applies each mutant of mutants.toml to a copy of the tree and runs the tests that must detect it.

    python3 tests/mutants.py [NAME...]

Without names it applies all, which takes hours. Exits with 1 if a mutant is not detected or does not compile, or if a test
fails without any mutant. Needs Python 3.11. Builds in target/mutants.
"""
import os
import pathlib
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
COPY = ROOT / "target" / "mutants" / "tree"
LOG = ROOT / "target" / "mutants" / "last.log"
# A test that times out has detected its mutant, too.
TEST_SECONDS = 900


def copy_tree():
    """Copies the tracked files. Unchanged files keep their times, so that little is built."""
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout.split(b"\0")
    for name in filter(None, map(os.fsdecode, files)):
        source, copy = ROOT / name, COPY / name
        if not source.is_file():
            continue
        content = source.read_bytes()
        if not copy.is_file() or copy.read_bytes() != content:
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(content)


def cargo(arguments, seconds=None):
    """Returns True if cargo succeeded, and None after a timeout."""
    environment = dict(os.environ, CARGO_TARGET_DIR=str(COPY.parent / "build"))
    environment |= {"PROPTEST_MAX_SHRINK_ITERS": "0", "RUST_BACKTRACE": "0"}
    with LOG.open("wb") as log:
        process = subprocess.Popen(["cargo", *arguments], cwd=COPY, env=environment, stdout=log, stderr=log, start_new_session=True)
        try:
            return process.wait(seconds) == 0
        except subprocess.TimeoutExpired:
            return None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, 9)
                process.wait()


def target(test):
    """Returns cargo's arguments and the name of a test: `it:NAME`, `lib:NAME`, or `CRATE:NAME` of a crate in crates/."""
    kind, name = test.split(":", 1)
    targets = {"it": ["--package", "hourglass", "--test", "it"], "lib": ["--package", "hourglass", "--lib"]}
    return targets.get(kind, ["--package", f"hourglass-{kind}", "--lib"]), name


def build(tests):
    """Returns True if these tests compile."""
    return all(cargo(["test", *kind, "--no-run"]) for kind in {tuple(target(test)[0]) for test in tests})


def passes(test):
    kind, name = target(test)
    # cargo also succeeds if no test has that name.
    return cargo(["test", *kind, "--", "--exact", name], TEST_SECONDS) and "test result: ok. 1 passed" in LOG.read_text()


def find_problems(mutant):
    """Returns the problems of a mutant: tests that do not detect it, or edits that do not apply or compile."""
    originals = {}
    try:
        for edit in mutant["edits"]:
            path = COPY / edit["file"]
            text = path.read_text()
            originals.setdefault(path, text)
            if text.count(edit["find"]) != 1:
                return [f"{edit['file']} must contain the text to replace once, but has it {text.count(edit['find'])} times"]
            path.write_text(text.replace(edit["find"], edit["replace"]))
        if not build(mutant["tests"]):
            return [f"does not compile:\n{LOG.read_text()[-2000:]}"]
        return [f"{test} passes" for test in mutant["tests"] if passes(test)]
    finally:
        for path, text in originals.items():
            path.write_text(text)


def main():
    mutants = tomllib.loads((ROOT / "tests" / "mutants.toml").read_text())["mutant"]
    names = sys.argv[1:]
    unknown = set(names) - {mutant["name"] for mutant in mutants}
    if unknown:
        sys.exit(f"no such mutant: {', '.join(sorted(unknown))}")
    mutants = [mutant for mutant in mutants if not names or mutant["name"] in names]
    COPY.mkdir(parents=True, exist_ok=True)
    copy_tree()
    tests = sorted({test for mutant in mutants for test in mutant["tests"]})
    if not build(tests):
        sys.exit(f"the tree does not compile:\n{LOG.read_text()[-2000:]}")
    failed = [f"{test} fails without a mutant" for test in tests if not passes(test)]
    for mutant in mutants if not failed else []:
        problems = find_problems(mutant)
        print(f"{mutant['name']}: {'; '.join(problems) or 'detected'}", flush=True)
        failed += [f"{mutant['name']}: {each}" for each in problems]
    if failed:
        sys.exit("\n".join(failed))
    print(f"all {len(mutants)} mutants are detected")


main()
