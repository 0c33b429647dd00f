#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Checks that programs with a mistake do not compile, and that the first error says what to do.

    python3 tests/compile_errors/check.py COMPILER [OPTION...]

Each program says in comments what the first line with `error:` must contain (`expects:`), and a
pattern that the whole of the compiler's text must match (`notes:`).
"""

import pathlib
import re
import subprocess
import sys


def complaint(command, program):
    source = program.read_text()
    expected = re.search(r"^// expects: (.*)$", source, re.MULTILINE).group(1)
    notes = re.search(r"^// notes: (.*)$", source, re.MULTILINE).group(1)
    result = subprocess.run([*command, "-std=c++20", "-fsyntax-only", str(program)],
                            stderr=subprocess.PIPE, text=True, check=False)
    if result.returncode == 0:
        return "it compiles"
    errors = [line for line in result.stderr.splitlines() if "error:" in line]
    if not errors or expected not in errors[0]:
        return f"the first error must say '{expected}':\n{result.stderr}"
    if not re.search(notes, result.stderr):
        return f"the notes must match '{notes}':\n{result.stderr}"
    return None


def main(command):
    programs = sorted(pathlib.Path(__file__).parent.glob("*.cpp"))
    complaints = {program.name: complaint(command, program) for program in programs}
    for name, text in complaints.items():
        print(f"{name}: {text or 'as expected'}")
    sys.exit(not programs or any(complaints.values()))


main(sys.argv[1:])
