/* SPDX-License-Identifier: Apache-2.0 */
#include <psrt/psrt.h>

#include <string.h>

#include "support/test.h"

Test(status, names_and_texts)
{
    cr_assert_str_eq(psrt_status_name(PSRT_OK), "PSRT_OK");
    cr_assert_str_eq(psrt_status_text(PSRT_OK), "success");
    cr_assert_str_eq(psrt_status_name(PSRT_ERR_TIMEOUT), "PSRT_ERR_TIMEOUT");
    cr_assert_str_eq(psrt_status_name(PSRT_ERR_SHARD_LOST), "PSRT_ERR_SHARD_LOST");
    cr_assert_str_eq(psrt_status_text(PSRT_ERR_SHARD_LOST), "shard lost");
    cr_assert_str_eq(psrt_status_name(PSRT_ERR_CLOSED), "PSRT_ERR_CLOSED");
}

Test(status, unknown_values)
{
    static const int unknown[] = { 2, -17, -39, -84, 1000000, -1000000 };
    for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
        cr_assert_str_eq(psrt_status_name((psrt_status_t)unknown[i]), "PSRT_UNKNOWN");
        cr_assert_str_eq(psrt_status_text((psrt_status_t)unknown[i]), "unknown status");
    }
}

Test(status, dtypes)
{
    static const struct {
        psrt_dtype_t dtype;
        size_t size;
        const char *name;
    } expected[] = {
        { PSRT_F32, 4, "f32" },         { PSRT_F64, 8, "f64" },          { PSRT_F16, 2, "f16" },
        { PSRT_BF16, 2, "bf16" },       { PSRT_I32, 4, "i32" },          { PSRT_I64, 8, "i64" },
        { PSRT_I8, 1, "i8" },           { PSRT_I16, 2, "i16" },          { PSRT_U8, 1, "u8" },
        { PSRT_DTYPE_NONE, 0, "none" }, { (psrt_dtype_t)77, 0, "none" },
    };
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        cr_assert_eq(psrt_dtype_size(expected[i].dtype), expected[i].size);
        cr_assert_str_eq(psrt_dtype_name(expected[i].dtype), expected[i].name);
    }
}

Test(status, redops)
{
    static const char *const names[] = { "sum", "prod", "min", "max", "avg", "none" };
    for (int op = PSRT_SUM; op <= PSRT_AVG + 1; op++)
        cr_assert_str_eq(psrt_redop_name((psrt_redop_t)op), names[op]);
    cr_assert_str_eq(psrt_redop_name((psrt_redop_t)-1), "none");
}

Test(status, version_is_that_of_the_header)
{
    char text[32];
    snprintf(text, sizeof(text), "%d.%d.%d", PSRT_VERSION_MAJOR, PSRT_VERSION_MINOR,
             PSRT_VERSION_PATCH);
    cr_assert_str_eq(psrt_version(), text);
}
