/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/inherit.h"

#include <string.h>
#include <unistd.h>

#include "launcher/remote.h"

const char *const psrti_inherit_words[] = {
    [PSRTI_INHERIT_AUTO] = "auto",
    [PSRTI_INHERIT_ALL] = "all",
    [PSRTI_INHERIT_LISTED] = "listed",
    [PSRTI_INHERIT_NONE] = "none",
    NULL,
};

/* What decides how a program computes and talks, and nothing that says who its user is elsewhere.
 * docs/launcher.md has the same list. */
static const char listed[] =
    "PATH LD_LIBRARY_PATH VIRTUAL_ENV CONDA_* PYTHON* "
    "LANG LANGUAGE LC_* TZ TERM NO_COLOR "
    "OMP_* GOMP_* KMP_* MKL_* OPENBLAS_* GOTO_* BLIS_* NUMEXPR_* NUMBA_* "
    "MALLOC_* TCMALLOC_* GLIBC_TUNABLES ASAN_OPTIONS LSAN_OPTIONS TSAN_OPTIONS UBSAN_OPTIONS "
    "CUDA_* CUDNN_* CUBLAS_* NVIDIA_* HIP_* HSA_* ROCM_* MIOPEN_* "
    "NCCL_* RCCL_* CCL_* GLOO_* TP_* UCX_* UCC_* FI_* NVSHMEM_* RDMAV_* MLX5_* "
    "PSRT_* TF_* TFMESOS_* XLA_* JAX_* KERAS_* TORCH_* TORCHINDUCTOR_* TORCHDYNAMO_* PYTORCH_* "
    "MXNET_* DMLC_* PS_VERBOSE BYTEPS_* HOROVOD_* GLOG_* HF_* TOKENIZERS_PARALLELISM "
    "http_proxy https_proxy ftp_proxy all_proxy no_proxy "
    "HTTP_PROXY HTTPS_PROXY FTP_PROXY ALL_PROXY NO_PROXY "
    "SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE ";

/* Many names begin so that are nobody's to know here, such as NVIDIA_API_KEY. */
static int matches(const char *pattern, size_t length, const char *entry)
{
    int is_prefix = pattern[length - 1] == '*';
    if (strncmp(entry, pattern, length - (size_t)is_prefix)) return 0;
    return is_prefix ? !psrti_env_looks_secret(entry) : entry[length] == '=';
}

static int is_listed(const char *entry)
{
    for (const char *pattern = listed; *pattern;) {
        size_t length = strcspn(pattern, " ");
        if (matches(pattern, length, entry)) return 1;
        pattern += length + 1;
    }
    return 0;
}

/* A proxy may be told with the password that it wants. */
static int has_password(const char *entry)
{
    size_t length = strcspn(entry, "=");
    return length > 6 && !strncasecmp(entry + length - 6, "_proxy", 6) && strchr(entry, '@');
}

static int passes(const psrti_job_t *job, const char *entry)
{
    switch (job->inherit) {
    case PSRTI_INHERIT_NONE: return 0;
    case PSRTI_INHERIT_LISTED: return is_listed(entry) && !has_password(entry);
    default: return 1;
    }
}

void psrti_inherit_choose(psrti_job_t *job)
{
    const psrti_backend_ops_t *ops;
    if (job->inherit != PSRTI_INHERIT_AUTO) return;
    int over_ssh = !psrti_backend_find(job, &ops) && ops == &psrti_backend_ssh;
    job->inherit = over_ssh ? PSRTI_INHERIT_LISTED : PSRTI_INHERIT_ALL;
}

const char *psrti_inherit_get(const psrti_job_t *job, const char *name)
{
    size_t length = strlen(name);
    for (char **entry = environ; *entry; entry++)
        if (!strncmp(*entry, name, length) && (*entry)[length] == '=')
            return passes(job, *entry) ? *entry + length + 1 : NULL;
    return NULL;
}

void psrti_inherit_all(const psrti_job_t *job, psrti_env_t *env)
{
    for (char **entry = environ; *entry; entry++) {
        char *const one[] = { *entry, NULL };
        if (passes(job, *entry)) psrti_env_merge(env, one);
    }
}
