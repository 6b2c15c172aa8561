/* SPDX-License-Identifier: Apache-2.0 */
/* Names of the public enumerations, and the version. */
#include <psrt/psrt.h>

const char *psrt_status_name(psrt_status_t status)
{
    switch (status) {
#define STATUS_NAME(name, value, text)                                                             \
    case PSRT_##name: return "PSRT_" #name;
        PSRT_STATUS_MAP(STATUS_NAME)
#undef STATUS_NAME
    }
    return "PSRT_UNKNOWN";
}

const char *psrt_status_text(psrt_status_t status)
{
    switch (status) {
#define STATUS_TEXT(name, value, text)                                                             \
    case PSRT_##name: return text;
        PSRT_STATUS_MAP(STATUS_TEXT)
#undef STATUS_TEXT
    }
    return "unknown status";
}

size_t psrt_dtype_size(psrt_dtype_t dtype)
{
    switch (dtype) {
    case PSRT_I8:
    case PSRT_U8: return 1;
    case PSRT_I16:
    case PSRT_F16:
    case PSRT_BF16: return 2;
    case PSRT_F32:
    case PSRT_I32: return 4;
    case PSRT_F64:
    case PSRT_I64: return 8;
    case PSRT_DTYPE_NONE: break;
    }
    return 0;
}

const char *psrt_dtype_name(psrt_dtype_t dtype)
{
    switch (dtype) {
    case PSRT_F32: return "f32";
    case PSRT_F64: return "f64";
    case PSRT_F16: return "f16";
    case PSRT_BF16: return "bf16";
    case PSRT_I32: return "i32";
    case PSRT_I64: return "i64";
    case PSRT_I8: return "i8";
    case PSRT_I16: return "i16";
    case PSRT_U8: return "u8";
    case PSRT_DTYPE_NONE: break;
    }
    return "none";
}

const char *psrt_redop_name(psrt_redop_t op)
{
    switch (op) {
    case PSRT_SUM: return "sum";
    case PSRT_PROD: return "prod";
    case PSRT_MIN: return "min";
    case PSRT_MAX: return "max";
    case PSRT_AVG: return "avg";
    }
    return "none";
}

const char *psrt_version(void) { return PSRT_VERSION_STRING; }
