/* libFuzzer target of the emulator: parses any bytes as PTX and runs what
 * parses.
 *
 * The first entry runs with one small CTA, zero parameters and a bound on its
 * instructions; whatever it does must end in reports, not in a crash.
 */
#include <stdlib.h>
#include <string.h>

#include "emulator/emulator.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The name behind the first `.entry` in the text. */
static const char *first_entry(const uint8_t *data, size_t size,
                               char name[256]) {
    static const char word[] = ".entry ";
    const size_t length = sizeof word - 1;
    for (size_t i = 0; i + length < size; i++) {
        size_t n = 0;
        if (memcmp(data + i, word, length) != 0)
            continue;
        for (const uint8_t *p = data + i + length;
             n < 255 && p + n < data + size; n++) {
            if (strchr(" \t\r\n(/", p[n]))
                break;
            name[n] = (char)p[n];
        }
        name[n] = 0;
        return name;
    }
    return NULL;
}

static void run_entry(struct emu_module *module, const char *entry) {
    static const uint8_t zeros[1 << 16];
    long bytes = emu_module_param_bytes(module, entry);
    if (bytes < 0 || bytes > (long)sizeof zeros)
        return;
    for (uint64_t seed = 0; seed < 2; seed++) {
        struct emu_options options = emu_options_default();
        struct emu_launch launch = {.entry = entry,
                                    .grid = {2, 1, 1},
                                    .block = {64, 1, 1},
                                    .dynamic_shared = 4096,
                                    .params = zeros,
                                    .param_bytes = (size_t)bytes};
        struct emu_result result;
        struct emu_error error;
        options.seed = seed;
        options.threads = 1;
        options.max_instructions = 3000;
        emu_launch(module, &launch, &options, &result, &error);
        emu_result_destroy(&result);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char name[256];
    struct emu_memory *memory = emu_memory_create();
    struct emu_source source = {(const char *)data, size, "fuzz.ptx"};
    struct emu_error error;
    struct emu_module *module = emu_module_create(memory, &source, 1, &error);
    const char *entry = module ? first_entry(data, size, name) : NULL;
    if (!module && error.text[0] == 0)
        abort(); /* a refusal without a reason */
    if (entry)
        run_entry(module, entry);
    emu_module_destroy(module);
    emu_memory_destroy(memory);
    return 0;
}
