#!/usr/bin/env python3
"""Runs every command that README.md and docs/ show in a block of code, in a folder that holds the files they name, each as a small
one of its kind; prints TAP. Lines with placeholders (FILE, [NAME=]) say how a command is written and are no commands. What needs
PyTorch is run by tests/torch (the tutorial); make's targets by other tests.

    docs.py SOURCE WEFT      in an empty folder, where tests/e2e/docs.sh has put the data
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys

SOURCE, WEFT = map(pathlib.Path, sys.argv[1:3])
PLACEHOLDER = re.compile(r"(?<![\w'-])[A-Z]{2,}\b|\[|·|\||\.\.\.")
# Commands that end with an error here, and which.
ENDS = {"weft hang": "W0461", "weft hang 4711": "W0461", "weft hang run/": "W0461"}
SKIPPED = ("tutorial.md", "decisions.md", "design.md", "performance.md")  # the first by tests/torch, the last is benchmarks


def commands(path):
    block = None  # the language of the block of code that we are in
    for line in path.read_text().replace("\\\n", " ").splitlines():
        if line.startswith("```"):
            block = line[3:].strip() if block is None else None
        elif block in ("", "sh"):
            command = re.split(r"\s{2,}|\s# ", line.strip())[0]
            if re.match(r"(weft|mpirun) ", command + " ") and not PLACEHOLDER.search(command):
                yield command


def choose(command):
    """The model that the command means, under its name, and weights of it where it has trained already."""
    text = re.search(r"corpus|tokens|gpt", command)
    kind = "gpt" if text else "predict" if "--loss" in command or command.startswith("weft run") else "loss"
    if "houses" in command:
        kind = "houses"
    for name in ("model.pt2", "gpt.pt2"):
        pathlib.Path(name).unlink(missing_ok=True)
        pathlib.Path(name).symlink_to(f"models/{kind}.pt2")
    shutil.rmtree("run", ignore_errors=True)
    if not re.search(r"(--out|-o) run/?( |$)", command):
        shutil.copytree(f"trained/{'gpt' if text else 'mlp'}", "run")
    for name in re.findall(r"(?:--out|-o) (\S+)", command):
        if not name.startswith("run"):
            shutil.rmtree(name, ignore_errors=True) if pathlib.Path(name).is_dir() else pathlib.Path(name).unlink(missing_ok=True)


def ran(command):
    choose(command)
    needs = re.match(r"mpirun ", command) and not shutil.which("mpirun")
    if needs:
        return "# SKIP no mpirun here"
    for folder in re.findall(r">(~\S*)/", command):
        os.makedirs(os.path.expanduser(folder), exist_ok=True)
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, errors="replace", timeout=120, stdin=subprocess.DEVNULL)
    if command in ENDS:
        return "" if f"error[{ENDS[command]}" in done.stderr else f"ended with {done.returncode}, not with {ENDS[command]}: {done.stderr}"
    return "" if done.returncode == 0 else f"exit code {done.returncode}: {done.stderr}"


def main():
    bin = pathlib.Path("bin")
    bin.mkdir()
    (bin / "weft").symlink_to(WEFT.resolve())
    os.environ["HOME"] = os.getcwd()
    os.environ["PATH"] = f"{bin.resolve()}:{os.environ['PATH']}"
    number, bad, seen = 0, 0, set()
    for path in [SOURCE / "README.md", *sorted((SOURCE / "docs").rglob("*.md"))]:
        if path.name in SKIPPED:
            continue
        for command in commands(path):
            if command in seen:
                continue
            seen.add(command)
            number += 1
            said = ran(command)
            fine = not said or said.startswith("# SKIP")
            print(f"{'ok' if fine else 'not ok'} {number} - {path.relative_to(SOURCE)}: {command}{' ' + said if said and fine else ''}")
            if not fine:
                bad = 1
                print("\n".join("#   " + line for line in said.splitlines()[:8]))
    print(f"1..{number}")
    if number < 40:
        print(f"# only {number} commands: the blocks are not found as they were")
        bad = 1
    sys.exit(bad)


main()
