/* SPDX-License-Identifier: Apache-2.0 */
#include "base/spec.h"

#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "support/test.h"

static void assert_error_has(const char *part)
{
    cr_assert(strstr(psrt_last_error(), part) != NULL, "\"%s\" is not in \"%s\"", part,
              psrt_last_error());
}

Test(spec, name_keys_and_values)
{
    psrti_spec_t spec;
    cr_assert_eq(psrti_spec_parse("optimizer", "adam:lr=1e-3,beta1=.9,eps=1e-8", &spec), PSRT_OK);
    cr_assert_str_eq(spec.name, "adam");
    cr_assert_eq(spec.count, 3);
    cr_assert_str_eq(spec.entry[0].key, "lr");
    cr_assert_str_eq(spec.entry[0].value, "1e-3");
    cr_assert_str_eq(spec.entry[2].key, "eps");
    cr_assert_str_eq(spec.entry[2].value, "1e-8");
}

Test(spec, name_alone_and_value_alone)
{
    psrti_spec_t spec;
    cr_assert_eq(psrti_spec_parse("consistency", "sync", &spec), PSRT_OK);
    cr_assert_str_eq(spec.name, "sync");
    cr_assert_eq(spec.count, 0);
    cr_assert_eq(psrti_spec_parse("consistency", "ssp:3", &spec), PSRT_OK);
    cr_assert_str_eq(spec.name, "ssp");
    cr_assert_eq(spec.count, 1);
    cr_assert_str_eq(spec.entry[0].key, "");
    cr_assert_str_eq(spec.entry[0].value, "3");
}

Test(spec, malformed_text_is_shown)
{
    static const char *const malformed[] = {
        "",
        ":lr=1",
        "adam:",
        "adam:lr=",
        "adam:=1",
        "adam:lr=1,",
        "adam:,lr=1",
        "a b:c=1",
        "adam:lr= 1",
        "adam: lr=1",
        "adam:lr=1,2",
        "ad/am",
        "adam:lr=1=2",
        "adam:lr:=1",
        "adam:lr=1,lr=2",
        "adam:1,lr=2",
        "ssp:3:4",
    };
    char shown[64];
    psrti_spec_t spec;
    for (size_t i = 0; i < PSRTI_COUNT(malformed); i++) {
        const char *text = malformed[i];
        psrti_fail_text("");
        cr_assert_eq(psrti_spec_parse("optimizer", text, &spec), PSRT_ERR_INVALID, "%s", text);
        snprintf(shown, sizeof(shown), "optimizer \"%s\"", text);
        assert_error_has(shown);
    }
    cr_assert_eq(psrti_spec_parse("optimizer", NULL, &spec), PSRT_ERR_INVALID);
}

Test(spec, limits)
{
    psrti_spec_t spec;
    char text[PSRTI_SPEC_TEXT + 1];
    memset(text, 'a', sizeof(text));
    text[PSRTI_SPEC_TEXT] = '\0';
    cr_assert_eq(psrti_spec_parse("optimizer", text, &spec), PSRT_ERR_INVALID);
    text[PSRTI_SPEC_TEXT - 1] = '\0';
    cr_assert_eq(psrti_spec_parse("optimizer", text, &spec), PSRT_OK);
    cr_assert_eq(strlen(spec.name), PSRTI_SPEC_TEXT - 1);

    size_t pos = 0;
    psrti_append(text, sizeof(text), &pos, "x:");
    for (int i = 0; i < PSRTI_SPEC_KEYS; i++)
        psrti_append(text, sizeof(text), &pos, "%sk%d=1", i ? "," : "", i);
    cr_assert_eq(psrti_spec_parse("optimizer", text, &spec), PSRT_OK);
    cr_assert_eq(spec.count, PSRTI_SPEC_KEYS);
    psrti_append(text, sizeof(text), &pos, ",more=1");
    cr_assert_eq(psrti_spec_parse("optimizer", text, &spec), PSRT_ERR_INVALID);
}

static const char *const keys[] = { "lr", "momentum", "nesterov" };

Test(spec, numbers_keep_defaults)
{
    psrti_spec_t spec;
    double values[3] = { 0.5, 0.9, 0 };
    cr_assert_eq(psrti_spec_parse("optimizer", "momentum:nesterov=true,lr=-2.5e-1", &spec),
                 PSRT_OK);
    cr_assert_eq(psrti_spec_numbers("optimizer", &spec, keys, values, 3), PSRT_OK);
    cr_assert(values[0] == -0.25);
    cr_assert(values[1] == 0.9);
    cr_assert(values[2] == 1);
}

Test(spec, numbers_of_a_value_alone)
{
    static const char *const no_key[] = { "" };
    psrti_spec_t spec;
    double staleness = 0;
    cr_assert_eq(psrti_spec_parse("consistency", "ssp:3", &spec), PSRT_OK);
    cr_assert_eq(psrti_spec_numbers("consistency", &spec, no_key, &staleness, 1), PSRT_OK);
    cr_assert(staleness == 3);
    cr_assert_eq(psrti_spec_numbers("consistency", &spec, keys, &staleness, 3), PSRT_ERR_INVALID);
    assert_error_has("consistency ssp: \"3\" is not of the form key=value; keys: lr, momentum");
}

Test(spec, unknown_key_and_bad_number_change_nothing)
{
    psrti_spec_t spec;
    double values[3] = { 0.5, 0.9, 0 };
    cr_assert_eq(psrti_spec_parse("optimizer", "momentum:lr=1,momentun=2", &spec), PSRT_OK);
    cr_assert_eq(psrti_spec_numbers("optimizer", &spec, keys, values, 3), PSRT_ERR_INVALID);
    assert_error_has("optimizer momentum");
    assert_error_has("\"momentun=2\"");
    assert_error_has("did you mean \"momentum\"?");
    cr_assert_eq(psrti_spec_parse("optimizer", "momentum:lr=1,completely_else=2", &spec), PSRT_OK);
    cr_assert_eq(psrti_spec_numbers("optimizer", &spec, keys, values, 3), PSRT_ERR_INVALID);
    assert_error_has("keys: lr, momentum, nesterov");
    cr_assert_eq(psrti_spec_numbers("optimizer", &spec, keys, values, 0), PSRT_ERR_INVALID);
    assert_error_has("keys: none");
    cr_assert_eq(psrti_spec_parse("optimizer", "momentum:lr=1,momentum=fast", &spec), PSRT_OK);
    cr_assert_eq(psrti_spec_numbers("optimizer", &spec, keys, values, 3), PSRT_ERR_INVALID);
    assert_error_has("momentum \"fast\" is not a number");
    cr_assert(values[0] == 0.5 && values[1] == 0.9 && values[2] == 0);
}
