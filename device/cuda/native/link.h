#include <stddef.h>

// weft_open opens the driver's library and initialises it: 0, an error of CUDA, or -1, with the loader's words in why. It is called once.
int weft_open(const char *path, char *why, size_t n);
