/* Runs a fuzz target over files: replays a corpus without libFuzzer.
 * usage: replay FILE... */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_BYTES = 32 << 20 };

int main(int argc, char **argv) {
    uint8_t *data = malloc(MAX_BYTES);
    for (int i = 1; data && i < argc; i++) {
        FILE *file = fopen(argv[i], "rb");
        if (!file) {
            perror(argv[i]);
            return 1;
        }
        size_t size = fread(data, 1, MAX_BYTES, file);
        fclose(file);
        LLVMFuzzerTestOneInput(data, size);
    }
    free(data);
    printf("%d inputs replayed\n", argc - 1);
    return data ? 0 : 1;
}
