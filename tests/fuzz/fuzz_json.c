/* JSON text: parsed or refused, always released. */
#define PARSE wf_json_parse
#include "text_reader.h"

static const char *const texts[] = {
    "{\"name\": \"aten.linear\", \"inputs\": [{\"arg\": {\"as_tensor\": \"x\"}}], \"k\": -1.5e3, \"t\": true}",
    "[1, 2, [3, [4, [5, []]]], {\"a\": {}}, \"\\u00e9\\n\", null]",
    "\"text\"",
};

void fuzz_seeds(void (*add)(const void *data, size_t size))
{
    seeds_from_texts(texts, WF_LEN(texts), add);
}
