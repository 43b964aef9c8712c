#!/usr/bin/env python3
"""Applies the mistakes of mutants.toml to a copy of the tree, one after the other, and runs the tests that must notice them.

    python3 tests/mutants.py [NAME...]

Without names all of them, which takes hours. Ends with status 1 if a mistake is not noticed, does not compile, or if a test
fails without any. Needs Python 3.11. Builds in target/mutants.
"""
import os
import pathlib
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
COPY = ROOT / "target" / "mutants" / "tree"
LOG = ROOT / "target" / "mutants" / "last.log"
# A test that a mistake keeps from ending has noticed it, too.
TEST_SECONDS = 900


def copy_tree():
    """The files that git knows, as they are now; those that did not change keep their times, so that little is built."""
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
    """Whether cargo ended with success; None when the time ran out."""
    environment = dict(os.environ, CARGO_TARGET_DIR=str(COPY.parent / "build"), HOURGLASS_TEST_SCALE="ci")
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
    """The package and binary of a test, and its name there: `it:NAME`, `lib:NAME`, or `CRATE:NAME` of a crate in crates/."""
    kind, name = test.split(":", 1)
    places = {"it": ["--package", "hourglass", "--test", "it"], "lib": ["--package", "hourglass", "--lib"]}
    return places.get(kind, ["--package", f"hourglass-{kind}", "--lib"]), name


def build(tests):
    """Whether what these tests need compiles."""
    return all(cargo(["test", *kind, "--no-run"]) for kind in {tuple(target(test)[0]) for test in tests})


def passes(test):
    kind, name = target(test)
    # cargo ends with success, too, when no test has that name.
    return cargo(["test", *kind, "--", "--exact", name], TEST_SECONDS) and "test result: ok. 1 passed" in LOG.read_text()


def noticed(mutant):
    """What is to be said of a mistake, if it is not noticed by all its tests."""
    originals = {}
    try:
        for edit in mutant["edits"]:
            path = COPY / edit["file"]
            text = path.read_text()
            originals.setdefault(path, text)
            if text.count(edit["find"]) != 1:
                return [f"{edit['file']} has the text to be replaced {text.count(edit['find'])} times"]
            path.write_text(text.replace(edit["find"], edit["replace"]))
        if not build(mutant["tests"]):
            return [f"it does not compile:\n{LOG.read_text()[-2000:]}"]
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
    failed = [f"{test} fails without any mistake" for test in tests if not passes(test)]
    for mutant in mutants if not failed else []:
        found = noticed(mutant)
        print(f"{mutant['name']}: {'; '.join(found) or 'noticed'}", flush=True)
        failed += [f"{mutant['name']}: {each}" for each in found]
    if failed:
        sys.exit("\n".join(failed))
    print(f"all {len(mutants)} mistakes are noticed")


main()
