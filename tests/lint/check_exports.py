#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_exports.py ROOT [LIBRARY | --selftest]: libpsrt.map lists exactly the functions that the
public headers declare; with LIBRARY, that exports exactly them."""
import glob
import re
import subprocess
import sys

PLUGIN = {"psrt_optimizer_plugin_v1"}  # declared for plug-ins, which define it


def declared(text):
    """Names of the functions that a header declares (not defines, not types or pointers)."""
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    text = re.sub(r"//[^\n]*", "", text)
    text = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*$", "", text, flags=re.M)
    text = re.sub(r'extern\s+"C"\s*\{', "", text)
    while "{" in text:  # bodies of structs, enums and inline functions
        smaller = re.sub(r"\{[^{}]*\}", ";", text)
        if smaller == text:
            break
        text = smaller
    names = set()
    for statement in text.split(";"):
        match = re.match(r"\s*([\w\s*]+?)\b(\w+)\s*\(", statement)
        if match and not re.match(r"(typedef|static)\b", match.group(1).strip()):
            names.add(match.group(2))
    return names


def listed(text):
    """Names in the `global:` part of a version script."""
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    names = set()
    for part in re.findall(r"global:(.*?)(?:local:|\})", text, flags=re.S):
        names |= {name.strip() for name in part.split(";") if name.strip()}
    return names


def exported(library):
    command = ["nm", "--dynamic", "--defined-only", "--format=posix", library]
    names = set()
    for line in subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines():
        name, kind = line.split()[:2]
        if kind != "A":  # the name of the version itself
            names.add(name.split("@")[0])
    return names


def compare(left, names_left, right, names_right):
    for name in sorted(names_left - names_right):
        print(f"{name}: in {left}, not in {right}")
    for name in sorted(names_right - names_left):
        print(f"{name}: in {right}, not in {left}")
    return names_left != names_right


def selftest():
    header = """
    #ifdef __cplusplus
    extern "C" {
    #endif
    #define F(x) \\
        hidden_by_define(x);
    typedef void (*psrt_fn)(void *arg, int n); /* comment(x); */
    typedef struct psrt_ops { int (*open)(int a); } psrt_ops_t;
    static inline int psrt_inline(int a) { return other(a); }
    /** doc psrt_doc(); */
    const char *psrt_text(void);
    psrt_status_t psrt_two(psrt_ops_t *ops,
                           void (*done)(void *));
    enum psrt_color { RED };
    """
    wrong = compare("header", declared(header), "expected", {"psrt_text", "psrt_two"})
    wrong |= compare("map", listed("V_1 { global: a; b; local: *; };"), "expected", {"a", "b"})
    wrong |= not compare("a", {"psrt_x"}, "b", {"psrt_y"})
    return wrong


def main():
    root = sys.argv[1]
    if sys.argv[2:] == ["--selftest"]:
        return selftest()
    headers = set()
    for path in glob.glob(root + "/include/psrt/**/*.h", recursive=True):
        with open(path, encoding="utf-8") as file:
            headers |= declared(file.read())
    with open(root + "/libpsrt.map", encoding="utf-8") as file:
        names = listed(file.read())
    wrong = compare("the public headers", headers - PLUGIN, "libpsrt.map", names)
    if len(sys.argv) > 2:
        wrong |= compare("libpsrt.map", names, sys.argv[2], exported(sys.argv[2]))
    print(f"{len(names)} symbols")
    return wrong or not names


sys.exit(main())
