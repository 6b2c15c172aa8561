/* SPDX-License-Identifier: Apache-2.0 */
/* Placeholders such as {ps_hosts} in commands, values of variables and names of directories. Pure. */
#ifndef PSRTI_LAUNCHER_EXPAND_H
#define PSRTI_LAUNCHER_EXPAND_H

#include "launcher/job.h"

/* `text` for the task, the caller's to free. Braces around anything but a placeholder stay. */
char *psrti_expand(const psrti_job_t *job, const psrti_task_t *task, const char *text);
/* The same with the braces of tfrun: doubled ones become single. */
char *psrti_expand_doubled(const psrti_job_t *job, const psrti_task_t *task, const char *text);
/* What tfrun would not have accepted: ERR_INVALID when there is a single brace that belongs to no
 * placeholder. */
psrt_status_t psrti_expand_check_doubled(const psrti_job_t *job, const char *text);

/* How TensorFlow, and placeholders, call the role. */
const char *psrti_expand_role_name(const psrti_role_t *role);
/* The addresses of a role, with commas between them. */
char *psrti_expand_hosts(const psrti_job_t *job, const psrti_role_t *role);
/* "host:port" of a task's n-th port; a port that is not known yet shows as "?". */
char *psrti_expand_address(const psrti_job_t *job, const psrti_task_t *task, unsigned port);
/* What others dial to reach the task's host. */
const char *psrti_expand_host(const psrti_job_t *job, const psrti_task_t *task);
/* Which of the hosts with tasks of its kind it runs on, counted by rank. */
unsigned psrti_expand_node_rank(const psrti_job_t *job, const psrti_task_t *task);

#endif
