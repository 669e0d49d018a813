/* Recipes: what is done to an input beyond what its format does by itself. */
#include <string.h>

#include "data/private.h"

const WfRecipe wf_recipe_none;

const WfRecipe *wf_recipe_of(const WfOpening *op, const char *input)
{
    for (int i = 0; i < op->recipes.n; i++)
        if (!strcmp(op->recipes.at[i].input, input))
            return &op->recipes.at[i];
    return &wf_recipe_none;
}
