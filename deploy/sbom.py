#!/usr/bin/env python3
"""Prints the contents of the binary as a CycloneDX 1.6 document: every crate of the locked dependency graph of one platform,
with version, licence, checksum and dependents. The same sources give the same document.

    deploy/sbom.py [--platform TRIPLE] > hourglass.cdx.json

Crates that run only during the build, such as macros, have the scope "excluded"."""

import argparse
import json
import pathlib
import subprocess
import tomllib
import uuid

ROOT = pathlib.Path(__file__).resolve().parent.parent
NAME = "hourglass"


def output(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def reached(nodes: dict, start: str, kinds: set, stop: set) -> set:
    """All packages reachable from `start` by these kinds of dependencies, without going beyond those in `stop`."""
    found, waiting = set(), [start]
    while waiting:
        package = waiting.pop()
        if package in found:
            continue
        found.add(package)
        if package in stop:
            continue
        for needed in nodes[package]["deps"]:
            if any(kind["kind"] in kinds for kind in needed["dep_kinds"]):
                waiting.append(needed["pkg"])
    return found


def reference(package: dict) -> str:
    return f"pkg:cargo/{package['name']}@{package['version']}"


def component(package: dict, checksums: dict, kind: str, linked: bool) -> dict:
    made = {
        "type": kind,
        "bom-ref": reference(package),
        "name": package["name"],
        "version": package["version"],
        "scope": "required" if linked else "excluded",
    }
    # A purl would say that the crate is on crates.io; those of this tree are not, and have no checksum.
    if package["source"]:
        made["purl"] = reference(package)
    if package["description"]:
        made["description"] = " ".join(package["description"].split())
    if package["license"]:
        # What SPDX writes with OR was once written with a slash.
        made["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    checksum = checksums.get((package["name"], package["version"]))
    if checksum:
        made["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    if package["repository"]:
        made["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return made


def document(platform: str) -> dict:
    metadata = json.loads(output("cargo", "metadata", "--locked", "--format-version=1", "--filter-platform", platform))
    lock = (ROOT / "Cargo.lock").read_bytes()
    locked = tomllib.loads(lock.decode())["package"]
    checksums = {(each["name"], each["version"]): each.get("checksum") for each in locked}
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    root = next(each for each in metadata["workspace_members"] if packages[each]["name"] == NAME)
    macros = {each for each, package in packages.items() if "proc-macro" in package["targets"][0]["kind"]}
    linked = reached(nodes, root, {None}, macros) - macros
    everything = reached(nodes, root, {None, "build"}, set())
    by_name = sorted(everything - {root}, key=lambda each: (packages[each]["name"], packages[each]["version"]))

    def needs(each: str) -> dict:
        needed = {need["pkg"] for need in nodes[each]["deps"]
                  if any(kind["kind"] in (None, "build") for kind in need["dep_kinds"])}
        return {"ref": reference(packages[each]),
                "dependsOn": sorted(reference(packages[need]) for need in needed & everything)}

    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, platform + lock.decode())}",
        "version": 1,
        "metadata": {
            "component": component(packages[root], checksums, "application", True),
            "properties": [{"name": "cargo:platform", "value": platform}],
        },
        "components": [component(packages[each], checksums, "library", each in linked) for each in by_name],
        "dependencies": [needs(each) for each in [root, *by_name]],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="a CycloneDX document of what is in the binary")
    parser.add_argument("--platform", help="a target triple; the machine's own when it is not given")
    platform = parser.parse_args().platform or output("rustc", "--print", "host-tuple").strip()
    print(json.dumps(document(platform), indent=2, ensure_ascii=False))


if __name__ == "__main__":
    main()
