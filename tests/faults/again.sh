#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# again.sh CMD ARGS: runs the command, again and again until it ends with 0, as the task of a job whose
# launcher would otherwise end the job with it. While $FAULTS_DIR/hold.ROLE.RANK exists it waits; when
# $FAULTS_DIR/enough exists it ends. A worker that found a bug (4) or cannot start (2) is not started again.
life=0
while :; do
    FAULTS_LIFE=$life "$@"
    code=$?
    echo "$code" >>"$FAULTS_DIR/ended.$PSRT_ROLE.$PSRT_RANK"
    case $code in 0 | 2 | 4) exit $code ;; esac
    [ -e "$FAULTS_DIR/enough" ] && exit $code
    while [ -e "$FAULTS_DIR/hold.$PSRT_ROLE.$PSRT_RANK" ]; do sleep 0.02; done
    life=$((life + 1))
done
