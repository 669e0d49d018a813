/* YAML text: parsed or refused, always released. */
#define PARSE wf_yaml_parse
#include "text_reader.h"

static const char *const texts[] = {
    "loss: cross_entropy\nlr: 3e-4\nbetas: [0.9, 0.999]\ndata:\n  - x=images.npy\n  - y=labels.npy\nshuffle: false\n",
    "%YAML 1.2\n---\na: {b: [1, 0x1f, .5, ~, \"q\\u00e9\\n\"], 'c d': }\n? e\n: - - 1\n    - 2\n...\n",
    "text: |2-\n    kept\n   lines\nfolded: >+\n  one\n  two\n\n# comment\n",
};

void fuzz_seeds(void (*add)(const void *data, size_t size))
{
    seeds_from_texts(texts, WF_LEN(texts), add);
}
