// A libcuda that computes nothing, for NVIDIA's real bindings to load: it answers like one H200, keeps memory on the
// host, and counts launches. What a test wants to know it reads through the functions fake_*.
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef int R;
typedef void *P;

static __thread P current;
static uint64_t launches, last_stream, last_params[256];
static uint64_t launched_graph, destroyed_exec;
static int captured_mode = -1;
static int capturing, fail_launch, last_count = 5;

uint64_t fake_launches(void) { return launches; }
uint64_t fake_stream(void) { return last_stream; }
uint64_t fake_param(int i) { return last_params[i]; }
uint64_t fake_graph(void) { return launched_graph; }
uint64_t fake_destroyed(void) { return destroyed_exec; }
int fake_mode(void) { return captured_mode; }
void fake_count(int count) { last_count = count; }
void fake_capture(int on) { capturing = on; }
void fake_fail(int status) { fail_launch = status; }

R cuInit(unsigned flags) { return 0; }
R cuDriverGetVersion(int *version) { *version = 13000; return 0; }
R cuDeviceGetCount(int *count) { *count = 1; return 0; }
R cuDeviceGet(int *device, int index) { *device = index; return 0; }
R cuDeviceGetName(char *name, int size, int device) { strncpy(name, "Fake H200", size); return 0; }
R cuDeviceGetAttribute(int *value, int attribute, int device) {
  *value = attribute == 75 ? 9 : attribute == 76 ? 0 : attribute == 97 ? 232448 : attribute == 16 ? 132 : 1;
  return 0;
}
R cuDevicePrimaryCtxRetain(P *context, int device) { *context = (P)100; return 0; }
R cuDevicePrimaryCtxRelease_v2(int device) { return 0; }
R cuCtxGetCurrent(P *context) { *context = current; return 0; }
R cuCtxSetCurrent(P context) { current = context; return 0; }
R cuCtxPushCurrent_v2(P context) { current = context; return 0; }
R cuCtxPopCurrent_v2(P *context) { *context = current; current = 0; return 0; }
R cuCtxGetDevice(int *device) { *device = 0; return 0; }
R cuModuleLoadData(P *module, const void *image) { *module = (P)7; return 0; }
R cuModuleUnload(P module) { return 0; }
R cuModuleGetFunction(P *function, P module, const char *name) { *function = (P)8; return 0; }
R cuFuncSetAttribute(P function, int attribute, int value) { return 0; }
R cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, P f, int threads, size_t bytes) { *blocks = 1; return 0; }
R cuOccupancyMaxActiveClusters(int *clusters, P function, const void *config) { *clusters = 8; return 0; }
R cuMemAlloc_v2(uint64_t *pointer, size_t size) {
  *pointer = (uint64_t)aligned_alloc(256, (size + 255) / 256 * 256);
  return 0;
}
R cuMemFree_v2(uint64_t pointer) { free((P)pointer); return 0; }
R cuMemsetD8Async(uint64_t pointer, unsigned char value, size_t size, P stream) {
  memset((P)pointer, value, size);
  return 0;
}
R cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t size) { memcpy((P)to, from, size); return 0; }
R cuMemcpyDtoH_v2(void *to, uint64_t from, size_t size) { memcpy(to, (P)from, size); return 0; }
R cuStreamCreate(P *stream, unsigned flags) { *stream = (P)64; return 0; }
R cuStreamDestroy_v2(P stream) { return 0; }
R cuStreamSynchronize(P stream) { return 0; }
R cuThreadExchangeStreamCaptureMode(int *mode) { return 0; }
R cuStreamIsCapturing(P stream, int *status) { *status = capturing; return 0; }
R cuStreamGetCaptureInfo_v2(P stream, int *status, uint64_t *id, P *graph, const P **deps, size_t *count) {
  *status = capturing;
  if (id) *id = 77;
  if (graph) *graph = 0;
  if (deps) *deps = 0;
  if (count) *count = 0;
  return 0;
}
R cuStreamGetCaptureInfo_v3(P stream, int *status, uint64_t *id, P *graph, const P **deps, const P **edges, size_t *count) {
  if (edges) *edges = 0;
  return cuStreamGetCaptureInfo_v2(stream, status, id, graph, deps, count);
}
R cuStreamBeginCapture_v2(P stream, int mode) { capturing = 1; captured_mode = mode; return 0; }
R cuStreamEndCapture(P stream, P *graph) { capturing = 0; *graph = (P)21; return 0; }
R cuGraphInstantiateWithFlags(P *exec, P graph, uint64_t flags) { *exec = (P)22; return graph != (P)21; }
R cuGraphUpload(P exec, P stream) { return exec != (P)22; }
R cuGraphDestroy(P graph) { return graph != (P)21; }
R cuGraphExecDestroy(P exec) { destroyed_exec = (uint64_t)exec; return 0; }
R cuGraphLaunch(P exec, P stream) {
  if (fail_launch) return fail_launch;
  launched_graph = (uint64_t)exec;
  last_stream = (uint64_t)stream;
  return 0;
}
R cuGetErrorName(int status, const char **text) { *text = "CUDA_ERROR_FAKE"; return 0; }
R cuGetErrorString(int status, const char **text) { *text = "as asked for"; return 0; }

// The bindings' CUlaunchConfig: grid, block, shared bytes, then the stream.
R cuLaunchKernelEx(const char *config, P function, void **params, void **extra) {
  if (fail_launch) return fail_launch;
  ++launches;
  last_stream = *(const uint64_t *)(config + 32);
  for (int i = 0; i < last_count; ++i) last_params[i] = *(uint64_t *)params[i];
  return 0;
}

R cuGetProcAddress_v2(const char *name, P *pointer, int version, uint64_t flags, int *found) {
  static const char *const suffixes[] = {"_v3", "_v2", ""};
  char full[256];
  *pointer = 0;
  for (int i = 0; i < 3 && !*pointer; ++i) {
    strcpy(full, name);
    strcat(full, suffixes[i]);
    *pointer = dlsym(RTLD_DEFAULT, full);
    Dl_info info;
    if (*pointer && (!dladdr(*pointer, &info) || !strstr(info.dli_fname, "libcuda"))) *pointer = 0;
  }
  // RTLD_DEFAULT does not see a library that was opened locally.
  if (!*pointer) {
    Dl_info self;
    dladdr((P)cuInit, &self);
    P handle = dlopen(self.dli_fname, RTLD_NOLOAD | RTLD_NOW);
    for (int i = 0; i < 3 && !*pointer; ++i) {
      strcpy(full, name);
      strcat(full, suffixes[i]);
      *pointer = dlsym(handle, full);
    }
  }
  if (found) *found = *pointer ? 0 : 1;
  return *pointer ? 0 : 500;
}
