/* A header that is not NCCL's, for the test that reads headers. */
#include <cuda_runtime.h>
#define NCCL_MAJOR 0
#define NCCL_MINOR 1
#define NCCL_PATCH 2
#define NCCL_CONFIG_UNDEF_INT 7
#define NCCL_CONFIG_INITIALIZER {0}
typedef struct { char bytes[3]; } ncclUniqueId;
typedef struct { size_t size; int magic; char rest[44]; } ncclConfig_t;
typedef int ncclResult_t, ncclDataType_t, ncclRedOp_t, ncclScalarResidence_t;
ncclResult_t ncclCommSplit(void *comm, int color, int key, ncclConfig_t *config);
