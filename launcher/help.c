/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/help.h"

#include <stdio.h>
#include <string.h>

#include "launcher/render/render.h"

static void print_flag(const psrti_flag_t *f)
{
    if (f->id && f->id < PSRTI_FLAG_LETTERS)
        printf("    -%c, --%s", f->id, f->name);
    else
        printf("        --%s", f->name);
    printf("%s%s\n", f->arg ? " " : "", f->arg ? f->arg : "");
    for (const char *doc = f->doc; *doc;) {
        int n = (int)strcspn(doc, "\n");
        printf("            %.*s\n", n, doc);
        doc += n + (doc[n] == '\n');
    }
}

void psrti_help_print(const psrti_flag_t *flags, size_t count)
{
    fputs(
        "NAME\n"
        "    psrt-launch - start, supervise and end the tasks of a job, here or on other hosts\n\n"
        "SYNOPSIS\n"
        "    psrt-launch [run] [-w|--workers N] [-s|--servers N] [options] -- CMD [ARGS]\n"
        "    psrt-launch [run] --config job.json [options] [-- CMD [ARGS]]\n"
        "    psrt-launch plan [--json] ...\n"
        "    psrt-launch preflight -H HOSTS ...\n"
        "    psrt-launch render marathon|k8s|slurm ...\n"
        "    psrt-launch tfrun -w N -s N ... -- CMD...\n"
        "    psrt-launch ps|status|logs|attach|kill [options] [JOB]\n"
        "    psrt-launch restart|replace ROLE INDEX\n\n"
        "DESCRIPTION\n"
        "    Workers run CMD, servers and the coordinator run psrtd, found beside psrt-launch or\n"
        "    in PATH. Tasks learn who they are from PSRT_* variables; workers also get RANK,\n"
        "    LOCAL_RANK and WORLD_SIZE. Lines of output carry the name of their task. The first\n"
        "    failure ends the job. No process of a job outlives it.\n"
        "    plan prints what would be started where, and starts nothing; preflight says of each host\n"
        "    whether it can be reached and what it has. render writes the job as a file for\n"
        "    Marathon, Kubernetes or Slurm; tfrun takes the flags of TFMesos.\n\n"
        "OPTIONS\n",
        stdout);
    for (size_t i = 0; i < count; i++)
        print_flag(&flags[i]);
    fputs("    Times are such as 500ms, 5s, 2m, 1h; a number alone counts seconds.\n\n"
          "OPTIONS OF RENDER\n",
          stdout);
    for (size_t i = 0; i < PSRTI_RENDER_FLAGS; i++)
        print_flag(&psrti_render_flags[i]);
    fputs(
        "\nENVIRONMENT\n"
        "    OMP_NUM_THREADS, OPENBLAS_NUM_THREADS\n"
        "            set for workers to usable cores / workers, at least 1, unless you set them\n"
        "    PYTHONUNBUFFERED\n"
        "            set to 1 for all tasks, unless you set it\n"
        "    XDG_STATE_HOME\n"
        "            where records of jobs are kept, in psrt/jobs; else ~/.local/state\n"
        "    XDG_RUNTIME_DIR, TMPDIR\n"
        "            where the job's directory is made; else /tmp\n"
        "    NO_COLOR\n"
        "            no coloured prefixes on a terminal\n"
        "    PSRT_LAUNCH_PSRTD, PSRT_LAUNCH_AGENT\n"
        "            for testing: the psrtd, the psrt-agent to run\n\n"
        "RUNNING JOBS\n"
        "    ps [-a] [--json]\n"
        "            those of the user; -a: also that ended\n"
        "    status [--json] [JOB]\n"
        "            state of each task, its last line\n"
        "    logs [-f] [--no-prefix] [--timestamps] [-j JOB] [ROLE[:INDEX]]\n"
        "            the last lines; -f: and what comes\n"
        "    attach [--no-prefix] [--timestamps] [JOB]\n"
        "            output and status from now on; Ctrl-C detaches\n"
        "    kill [--signal S] [JOB]\n"
        "            stop it; KILL: at once; USR1, USR2: pass it on\n"
        "    restart [-j JOB] ROLE INDEX\n"
        "            end a task and start it anew\n"
        "    replace [-j JOB] ROLE INDEX\n"
        "            the same, on another host if there is one\n"
        "    JOB\n"
        "            an id or a name; without it the only job that runs\n\n"
        "SIGNALS\n"
        "    SIGINT (Ctrl-C), SIGTERM and SIGHUP stop the job: tasks get SIGTERM, and SIGKILL\n"
        "    after the grace time. A second one kills at once, a third does not wait for that.\n"
        "    SIGUSR1 and SIGUSR2 are passed on to the tasks. SIGQUIT prints the state of each.\n\n"
        "EXIT STATUS\n"
        "    0 when all workers ended with 0. Else that of the first task that failed, 128+n\n"
        "    when signal n killed it or stopped the job; 124 after --timeout; 126 or 127 when a\n"
        "    command could not be run; 3 when not all tasks started or joined in time, 2 wrong\n"
        "    usage, 69 psrtd is missing or a host cannot be used, 70 system error.\n",
        stdout);
}
