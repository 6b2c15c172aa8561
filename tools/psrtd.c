/* SPDX-License-Identifier: Apache-2.0 */
/* A parameter server, or the coordinator of a job, as a process of its own. */
#include <psrt/psrt.h>

#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_NOT_ASSEMBLED = 3 };

static const char help[] =
    "usage: psrtd [--coordinator]\n"
    "\n"
    "Runs a parameter server of a libpsrt job until the job ends; with --coordinator, the job's\n"
    "coordinator. psrt-launch starts both on one machine; docs/by-hand.md tells how to without.\n"
    "\n"
    "  --coordinator  run the coordinator instead of a server\n"
    "  -h, --help     print this\n"
    "  --version      print the version\n"
    "\n"
    "What it is and whom it talks to comes from the environment: PSRT_ROLE, PSRT_RANK,\n"
    "PSRT_COORDINATOR, PSRT_JOB_DIR and others; `psrt-info -a` lists and explains them.\n"
    "SIGTERM and SIGINT make it leave the job in order.\n"
    "\n"
    "Exit status: 0 the job ended or a signal asked to leave, 1 an error (its text is on stderr),\n"
    "2 wrong usage.\n";

/* The runtime polls it; the type is int on every Linux. */
static volatile sig_atomic_t stop;

static void on_signal(int signal_number)
{
    (void)signal_number;
    stop = 1;
}

static void install_handlers(void)
{
    struct sigaction action = { .sa_handler = on_signal };
    sigemptyset(&action.sa_mask);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    /* A reader of our stderr that went away is no reason to drop the shards. */
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, NULL);
}

static int run(int coordinator)
{
    psrt_server_params_t params = PSRT_SERVER_PARAMS_INIT;
    params.stop = &stop;
    install_handlers();
    psrt_status_t status = coordinator ? psrt_coordinator_run(&params) : psrt_server_run(&params);
    if (status == PSRT_OK) return EXIT_OK;
    const char *text = psrt_last_error();
    fprintf(stderr, "psrtd: %s\n", *text ? text : psrt_status_text(status));
    return status == PSRT_ERR_START_TIMEOUT ? EXIT_NOT_ASSEMBLED : EXIT_FAILED;
}

int main(int argc, char **argv)
{
    enum { COORDINATOR = 256, VERSION };
    static const struct option flags[] = { { "coordinator", no_argument, NULL, COORDINATOR },
                                           { "help", no_argument, NULL, 'h' },
                                           { "version", no_argument, NULL, VERSION },
                                           { NULL, 0, NULL, 0 } };
    int coordinator = 0;
    for (int flag; (flag = getopt_long(argc, argv, "h", flags, NULL)) != -1;) {
        switch (flag) {
        case COORDINATOR: coordinator = 1; break;
        case 'h': return fputs(help, stdout) < 0;
        case VERSION: return printf("psrtd %s\n", psrt_version()) < 0;
        default: /* getopt_long named the flag */
            fputs("psrtd: see psrtd --help\n", stderr);
            return EXIT_USAGE;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "psrtd: unexpected argument \"%s\"; see psrtd --help\n", argv[optind]);
        return EXIT_USAGE;
    }
    return run(coordinator);
}
