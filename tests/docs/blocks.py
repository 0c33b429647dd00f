#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Makes one C++ file of all C++ blocks in the documents, so that a compiler reads them too.

    python3 tests/docs/blocks.py OUTPUT DOCUMENT...

Includes come first. What is declared at the start of a line goes to a namespace of the block's own,
the rest to a function there. `...` stands for what a reader can imagine; prelude.h has the names
that the blocks take for granted.
"""

import pathlib
import re
import sys

BLOCK = re.compile(r"^```cpp\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DECLARATION = re.compile(r"^(?:struct|class|template|using)\b.*?^\};\n", re.MULTILINE | re.DOTALL)


def main(output, documents):
    includes, parts = [], []
    for document in documents:
        text = pathlib.Path(document).read_text()
        for number, block in enumerate(BLOCK.findall(text), 1):
            lines = block.splitlines(keepends=True)
            includes += [line for line in lines if line.startswith("#include")]
            code = "".join("\n" if line.strip() == "..." else line
                           for line in lines if not line.startswith("#include"))
            declarations = "".join(DECLARATION.findall(code))
            statements = DECLARATION.sub("", code)
            name = re.sub(r"\W", "_", pathlib.Path(document).stem)
            parts.append(f"// {pathlib.Path(document).name}, block {number}\n"
                         f"namespace {name}_{number} {{\n{declarations}"
                         f"void run() {{\n{statements}}}\n}}\n")
    if not parts:
        sys.exit("no C++ block was found")
    pathlib.Path(output).write_text("".join(dict.fromkeys(includes)) +
                                    '\n#include "docs/prelude.h"\n\n' + "\n".join(parts))


main(sys.argv[1], sys.argv[2:])
