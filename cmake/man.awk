# SPDX-License-Identifier: Apache-2.0
# Makes a manual page of what a program prints for --help: lines without indent are headings, 4 blanks text,
# more of them below a line of 4 its explanation.
#   awk -v name=psrt-launch -v version=0.1.0 -f man.awk help.txt
function escape(text) {
    gsub(/\\/, "\\e", text)
    gsub(/-/, "\\-", text)
    sub(/^['.]/, "\\\\\\&&", text)
    return text
}
BEGIN { printf ".TH %s 1 \"\" \"libpsrt %s\" \"libpsrt\"\n", toupper(name), version }
/^$/ { blank = 1; next }
/^[^ ]/ { print ".SH " escape($0); heading = $0; item = blank = 0; next }
{
    text = $0
    sub(/^ +/, "", text)
    depth = length($0) - length(text)
    flags = heading ~ /^OPTIONS/
    listed = flags || heading == "ENVIRONMENT" || heading == "VERBS" || heading == "RUNNING JOBS"
    if (heading == "SYNOPSIS" || heading == "EXAMPLES") {
        print (item++ ? ".br\n" : ".nh\n") escape(text)
    } else if (depth > 8 || (depth > 4 && !(listed && text ~ /^-/)) ) {
        print escape(text)
    } else if (listed && (text ~ /^-/ || !flags)) {
        print ".TP\n.B " escape(text)
    } else {
        if (blank) print ".PP"
        print escape(text)
    }
    blank = 0
}
