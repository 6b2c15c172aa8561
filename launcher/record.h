/* SPDX-License-Identifier: Apache-2.0 */
/* What is known of a user's jobs: a directory for each under XDG_STATE_HOME/psrt/jobs, else
 * ~/.local/state/psrt/jobs, with job.json and events.jsonl. Its launcher holds a lock on it. Of jobs
 * that ended the newest PSRTI_RECORDS_KEPT stay. */
#ifndef PSRTI_LAUNCHER_RECORD_H
#define PSRTI_LAUNCHER_RECORD_H

#include <jansson.h>
#include <limits.h>

#include "launcher/job.h"

#define PSRTI_RECORDS_KEPT 20
#define PSRTI_RECORD_EVENTS_MAX (1u << 20) /* bytes of events.jsonl */

typedef struct psrti_record psrti_record_t;

/* For a job with a name, which begins. Removes the oldest of those that ended. */
psrt_status_t psrti_record_open(const psrti_job_t *job, psrti_record_t **record_p);
/* All take NULL for a record that could not be opened. */
const char *psrti_record_id(const psrti_record_t *record);
const char *psrti_record_dir(const psrti_record_t *record);
/* Sets a value of job.json; takes the value over. */
void psrti_record_set(psrti_record_t *record, const char *name, json_t *value);
/* A line of events.jsonl; takes the event over, and adds the time. */
void psrti_record_event(psrti_record_t *record, json_t *event);
void psrti_record_close(psrti_record_t *record);

/* One job of the user, from job.json, with "alive" and "record" (its directory) added. */
json_t *psrti_record_read(const char *id); /* NULL: no such job */
/* All of them, the newest first. */
json_t *psrti_record_list(void);

#endif
