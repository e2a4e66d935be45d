#!/usr/bin/env python3
"""Writes the licences of the crates that are built into packages to a file: notices.py FILE TARGET PACKAGE...

Most licences demand that their text accompanies a program. Crates with the same text share one copy of it. A crate
whose archive has no such file is listed with the licence that it declares."""

import json
import pathlib
import subprocess
import sys

NAMES = ("licen", "copying", "notice", "unlicense")


def texts(package):
    """The licence files of a crate."""
    folder = pathlib.Path(package["manifest_path"]).parent
    named = [path for path in folder.iterdir() if path.name.lower().startswith(NAMES)]
    files = [path for path in named if path.is_file()]
    for path in named:
        if path.is_dir():
            files += (inner for inner in path.iterdir() if inner.is_file())
    return [path.read_text(encoding="utf-8", errors="replace").strip() for path in sorted(files)]


def main():
    file, target, *names = sys.argv[1:]
    root = pathlib.Path(__file__).resolve().parents[2]
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", target]
    data = json.loads(subprocess.run(command, cwd=root, check=True, stdout=subprocess.PIPE).stdout)
    packages = {package["id"]: package for package in data["packages"]}
    nodes = {node["id"]: node for node in data["resolve"]["nodes"]}
    members = set(data["workspace_members"])

    seen, waiting = set(), [i for i in members if packages[i]["name"] in names]
    while waiting:
        at = waiting.pop()
        if at not in seen:
            seen.add(at)
            kinds = ((dep["pkg"], {kind["kind"] for kind in dep["dep_kinds"]}) for dep in nodes[at]["deps"])
            waiting += (other for other, kind in kinds if None in kind)

    shared = {}
    verb = "contains" if len(names) == 1 else "contain"
    lines = [f"{' and '.join(names)} {verb} these crates, under these licences:\n"]
    for package in sorted((packages[i] for i in seen - members), key=lambda package: package["name"]):
        crate = f"{package['name']} {package['version']}"
        lines.append(f"    {crate}: {package['license'] or 'see below'}")
        for text in texts(package):
            shared.setdefault(text, []).append(crate)
    for text, crates in shared.items():
        lines.append(f"\n{'=' * 80}\n{', '.join(crates)}\n\n{text}")
    pathlib.Path(file).write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
