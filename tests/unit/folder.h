/* For tests: a folder goes with all that is in it. */
#ifndef FOLDER_H
#define FOLDER_H

#include <stdio.h>
#include <stdlib.h>

static inline int remove_all(const char *folder)
{
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

#endif
