//===- StepCall.cpp - From Python tensors to a launch ---------------------===//
//
// The part of a call of a step that Python is too slow for: checks each tensor
// against the manifest, gathers the addresses and launches the kernel. It only
// ever says "this fits" or "look closer"; trainkernel.runtime, which can do all
// of this by itself, then decides and words the error.
//
// Tensors are read through DLPack's C exchange API. Python is called through
// functions of its stable ABI that the process has loaded already, so that one
// library fits every version and is built without Python's headers. None of
// its macros is used: they would look into objects.
//
//===----------------------------------------------------------------------===//

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

//===----------------------------------------------------------------------===//
// Python's stable ABI
//===----------------------------------------------------------------------===//

// Weak: found in the running interpreter, or null in a process without one.
#define TK_PYTHON extern "C" __attribute__((weak))

struct PyObject;
using PyFunction = PyObject *(*)(PyObject *self, PyObject *const *args, intptr_t count);
struct PyMethodDef {
  const char *name;
  PyFunction function;
  int flags;
  const char *doc;
};
constexpr int kFastCall = 0x80;

TK_PYTHON PyObject *PyObject_Type(PyObject *);
TK_PYTHON PyObject *PyObject_Vectorcall(PyObject *, PyObject *const *, size_t, PyObject *);
TK_PYTHON void Py_IncRef(PyObject *);
TK_PYTHON void Py_DecRef(PyObject *);
TK_PYTHON PyObject *PyBool_FromLong(long);
TK_PYTHON intptr_t PyList_Size(PyObject *);
TK_PYTHON PyObject *PyList_GetItem(PyObject *, intptr_t);
TK_PYTHON PyObject *PyList_New(intptr_t);
TK_PYTHON int PyList_SetItem(PyObject *, intptr_t, PyObject *);
TK_PYTHON PyObject *PyLong_FromLong(long);
TK_PYTHON PyObject *PyLong_FromUnsignedLongLong(unsigned long long);
TK_PYTHON void PyErr_Clear();
TK_PYTHON PyObject *PyCapsule_New(void *, const char *, void (*)(PyObject *));
TK_PYTHON void *PyCapsule_GetPointer(PyObject *, const char *);
TK_PYTHON PyObject *PyCFunction_NewEx(PyMethodDef *, PyObject *, PyObject *);
TK_PYTHON void *PyEval_SaveThread();
TK_PYTHON void PyEval_RestoreThread(void *);

namespace {

//===----------------------------------------------------------------------===//
// DLPack 1.x
//===----------------------------------------------------------------------===//

struct DLTensor {
  void *data;
  int32_t deviceType, deviceID;
  int32_t rank;
  uint8_t code, bits;
  uint16_t lanes;
  const int64_t *shape, *strides;
  uint64_t byteOffset;
};

struct DLPackExchangeAPI {
  uint32_t major, minor;
  void *previous;
  void *allocate, *managedFromPython, *managedToPython;
  /// Borrows the tensor's own shape and strides; -1 with a Python exception.
  int (*tensorFromPython)(PyObject *, DLTensor *);
  int (*currentStream)(int32_t deviceType, int32_t deviceID, void **stream);
};

//===----------------------------------------------------------------------===//
// A step
//===----------------------------------------------------------------------===//

/// A type of tensor that may be passed.
struct TensorType {
  PyObject *type; // Borrowed: the Python object that made the step holds it.
  const DLPackExchangeAPI *api;
  /// Tells whether the values of a tensor are not what its memory says; or null. Borrowed.
  PyObject *isLazy;
};

struct Tensor {
  uint8_t code, bits;
  std::vector<int64_t> shape;
  uint64_t alignmentMask;
  uint64_t bytes;
  /// Of an output, the input whose place it may take, or -1.
  int64_t updates = -1;
  std::vector<TensorType> types;
};

/// What launches on one stream need.
struct Lane {
  void *stream;
  const void *config; // A CUlaunchConfig.
  uint64_t workspace;
};

struct Cuda {
  int (*launch)(const void *config, void *function, void **params, void **extra);
  int (*isCapturing)(void *stream, int *status);
  int (*currentContext)(void **context);
  void *function = nullptr;
  void *context = nullptr;
};

struct StepCall {
  int32_t deviceType, deviceID;
  size_t numInputs;
  std::vector<Tensor> tensors; // Inputs, then outputs.
  PyObject *false_;            // Borrowed; it lives for ever.
  Cuda cuda;
  std::vector<Lane> lanes;
  /// The inputs of the last donation that was found free of overlaps.
  std::vector<uint64_t> disjoint;

  size_t numOutputs() const { return tensors.size() - numInputs; }
};

/// Results besides CUDA's own errors, which are positive.
enum Status : long { Launched = 0, LookCloser = -1, LaunchInPython = -2 };

/// Behind the tensors: the workspace, the steps of a launch and the entries of each batch. A function that runs one
/// step does not take the last two.
constexpr size_t kExtraParameters = 3;

/// Parameters of one call: addresses, pointers to them; on the stack unless there are many.
class Parameters {
public:
  explicit Parameters(size_t count) : count(count) {
    if (count > kInline)
      large.resize(2 * count);
    values = count > kInline ? large.data() : small;
  }
  uint64_t &operator[](size_t index) { return values[index]; }
  const uint64_t *data() const { return values; }
  void **pointers() {
    uint64_t *list = values + count;
    for (size_t i = 0; i < count; ++i)
      list[i] = reinterpret_cast<uint64_t>(values + i);
    return reinterpret_cast<void **>(list);
  }

private:
  static constexpr size_t kInline = 64;
  size_t count;
  uint64_t small[2 * kInline];
  std::vector<uint64_t> large;
  uint64_t *values;
};

const TensorType *findType(const Tensor &tensor, PyObject *object) {
  PyObject *type = PyObject_Type(object);
  // The object keeps its type.
  Py_DecRef(type);
  for (const TensorType &known : tensor.types)
    if (known.type == type)
      return &known;
  return nullptr;
}

bool isContiguous(const DLTensor &given) {
  if (!given.strides)
    return true;
  int64_t stride = 1;
  for (int32_t axis = given.rank - 1; axis >= 0; --axis) {
    // An axis of one element has any stride.
    if (given.shape[axis] != 1 && given.strides[axis] != stride)
      return false;
    stride *= given.shape[axis];
  }
  return true;
}

bool isLazy(const StepCall &step, const TensorType &type, PyObject *object) {
  if (!type.isLazy)
    return false;
  PyObject *answer = PyObject_Vectorcall(type.isLazy, &object, 1, nullptr);
  if (!answer) {
    PyErr_Clear();
    return true;
  }
  Py_DecRef(answer);
  return answer != step.false_;
}

/// Whether a tensor certainly fits, and its address.
bool readTensor(const StepCall &step, const Tensor &wanted, PyObject *object, uint64_t &address) {
  const TensorType *type = findType(wanted, object);
  if (!type)
    return false;
  DLTensor given;
  if (type->api->tensorFromPython(object, &given) != 0) {
    PyErr_Clear();
    return false;
  }
  if (given.code != wanted.code || given.bits != wanted.bits || given.lanes != 1 ||
      given.deviceType != step.deviceType || given.deviceID != step.deviceID ||
      given.rank != static_cast<int32_t>(wanted.shape.size()) ||
      !std::equal(wanted.shape.begin(), wanted.shape.end(), given.shape))
    return false;
  address = reinterpret_cast<uint64_t>(given.data) + given.byteOffset;
  if ((address & wanted.alignmentMask) || (wanted.bytes && (!address || !isContiguous(given))))
    return false;
  return !isLazy(step, *type, object);
}

/// Whether no two inputs share memory: those of the last such call do not.
bool areDisjoint(StepCall &step, const Parameters &values) {
  size_t bytes = step.numInputs * sizeof(uint64_t);
  if (step.disjoint.size() == step.numInputs && !std::memcmp(step.disjoint.data(), values.data(), bytes))
    return true;
  std::vector<std::pair<uint64_t, uint64_t>> ranges;
  for (size_t i = 0; i < step.numInputs; ++i)
    ranges.emplace_back(values.data()[i], step.tensors[i].bytes);
  std::sort(ranges.begin(), ranges.end());
  uint64_t reach = 0;
  for (auto [start, size] : ranges) {
    if (start < reach)
      return false;
    reach = start + size;
  }
  step.disjoint.assign(values.data(), values.data() + step.numInputs);
  return true;
}

/// Reads the inputs and those outputs that are no donated inputs.
bool readAll(StepCall &step, PyObject *leaves, PyObject *fresh, bool donate, Parameters &values) {
  if (PyList_Size(leaves) != static_cast<intptr_t>(step.numInputs))
    return false;
  for (size_t i = 0; i < step.numInputs; ++i)
    if (!readTensor(step, step.tensors[i], PyList_GetItem(leaves, i), values[i]))
      return false;
  if (donate && !areDisjoint(step, values))
    return false;
  intptr_t next = 0, made = PyList_Size(fresh);
  for (size_t i = step.numInputs; i < step.tensors.size(); ++i) {
    const Tensor &output = step.tensors[i];
    if (donate && output.updates >= 0)
      values[i] = values[output.updates];
    else if (next == made || !readTensor(step, output, PyList_GetItem(fresh, next++), values[i]))
      return false;
  }
  return next == made;
}

bool findLane(const StepCall &step, void *stream, Lane &found) {
  for (const Lane &lane : step.lanes)
    if (lane.stream == stream)
      return found = lane, true;
  return false;
}

/// The caller's current stream; the legacy default stream has two names.
bool currentStream(const StepCall &step, void *&stream) {
  const TensorType &first = step.tensors.front().types.front();
  if (first.api->currentStream(step.deviceType, step.deviceID, &stream) != 0) {
    PyErr_Clear();
    return false;
  }
  if (stream == reinterpret_cast<void *>(1))
    stream = nullptr;
  return true;
}

long launch(const StepCall &step, Parameters &values) {
  void *stream = nullptr, *context = nullptr;
  if (!step.cuda.function || !currentStream(step, stream))
    return LaunchInPython;
  Lane lane;
  int capturing = 0;
  if (!findLane(step, stream, lane) || step.cuda.currentContext(&context) || context != step.cuda.context ||
      step.cuda.isCapturing(stream, &capturing) || capturing)
    return LaunchInPython;
  size_t workspace = step.tensors.size();
  values[workspace] = lane.workspace;
  values[workspace + 1] = values[workspace + 2] = 1;
  Cuda cuda = step.cuda;
  // A full queue makes the driver wait. Meanwhile another thread may change the step.
  void *thread = PyEval_SaveThread();
  int error = cuda.launch(lane.config, cuda.function, values.pointers(), nullptr);
  PyEval_RestoreThread(thread);
  return error;
}

StepCall &stepOf(PyObject *self) { return *static_cast<StepCall *>(PyCapsule_GetPointer(self, nullptr)); }

/// read(leaves, fresh, donate): a list of all addresses, or -1.
PyObject *callRead(PyObject *self, PyObject *const *args, intptr_t count) {
  StepCall &step = stepOf(self);
  Parameters values(step.tensors.size() + kExtraParameters);
  if (count != 3 || !readAll(step, args[0], args[1], args[2] != step.false_, values))
    return PyLong_FromLong(LookCloser);
  intptr_t size = static_cast<intptr_t>(step.tensors.size());
  PyObject *list = PyList_New(size);
  for (intptr_t i = 0; list && i < size; ++i)
    PyList_SetItem(list, i, PyLong_FromUnsignedLongLong(values[i]));
  return list;
}

/// launch(leaves, fresh, donate): a Status.
PyObject *callLaunch(PyObject *self, PyObject *const *args, intptr_t count) {
  StepCall &step = stepOf(self);
  Parameters values(step.tensors.size() + kExtraParameters);
  if (count != 3 || !readAll(step, args[0], args[1], args[2] != step.false_, values))
    return PyLong_FromLong(LookCloser);
  return PyLong_FromLong(launch(step, values));
}

/// Inputs that should lie where they lay.
struct Watch {
  PyObject *step;
  std::vector<std::pair<int64_t, uint64_t>> places; // Which input, and its address.
};

/// watch(tensors): whether all are as they were.
PyObject *callWatch(PyObject *self, PyObject *const *args, intptr_t count) {
  const Watch &watch = *static_cast<Watch *>(PyCapsule_GetPointer(self, nullptr));
  const StepCall &step = stepOf(watch.step);
  bool same = count == 1 && PyList_Size(args[0]) == static_cast<intptr_t>(watch.places.size());
  for (size_t i = 0; same && i < watch.places.size(); ++i) {
    uint64_t address = 0;
    auto [input, wanted] = watch.places[i];
    same = readTensor(step, step.tensors[input], PyList_GetItem(args[0], i), address) && address == wanted;
  }
  return PyBool_FromLong(same);
}

PyMethodDef readMethod = {"read", callRead, kFastCall, "addresses of the tensors of a call"};
PyMethodDef launchMethod = {"launch", callLaunch, kFastCall, "check the tensors of a call and launch"};

PyMethodDef watchMethod = {"watch", callWatch, kFastCall, "whether tensors lie where they lay"};

void destroy(PyObject *capsule) { delete static_cast<StepCall *>(PyCapsule_GetPointer(capsule, nullptr)); }

void destroyWatch(PyObject *capsule) {
  auto *watch = static_cast<Watch *>(PyCapsule_GetPointer(capsule, nullptr));
  Py_DecRef(watch->step);
  delete watch;
}

bool hasPython() {
  return PyObject_Type && PyObject_Vectorcall && Py_IncRef && Py_DecRef && PyBool_FromLong && PyList_Size &&
         PyList_GetItem && PyList_New && PyList_SetItem && PyLong_FromLong && PyLong_FromUnsignedLongLong &&
         PyErr_Clear && PyCapsule_New && PyCapsule_GetPointer && PyCFunction_NewEx && PyEval_SaveThread &&
         PyEval_RestoreThread;
}

} // namespace

//===----------------------------------------------------------------------===//
// Interface, called through ctypes with the GIL held
//===----------------------------------------------------------------------===//

#define TK_EXPORT extern "C" __attribute__((visibility("default")))

/// The version of this interface, or 0 where there is no Python.
TK_EXPORT int32_t tk_call_version() { return hasPython() ? 2 : 0; }

/// A capsule that holds a step without tensors.
TK_EXPORT PyObject *tk_call_new(int32_t deviceType, int32_t deviceID, int64_t numInputs, PyObject *false_) {
  auto *step = new StepCall{deviceType, deviceID, static_cast<size_t>(numInputs), {}, false_, {}, {}, {}};
  return PyCapsule_New(step, nullptr, destroy);
}

/// Adds a tensor: the inputs first, then the outputs.
TK_EXPORT void tk_call_add_tensor(PyObject *self, uint8_t code, uint8_t bits, const int64_t *shape, int64_t rank,
                                  uint64_t alignment, uint64_t bytes, int64_t updates) {
  Tensor tensor{code, bits, {shape, shape + rank}, alignment - 1, bytes, updates, {}};
  stepOf(self).tensors.push_back(std::move(tensor));
}

/// Allows a type of tensor at a place; returns whether its exchange API is one that we know.
TK_EXPORT int32_t tk_call_add_type(PyObject *self, int64_t index, PyObject *type, const void *table, PyObject *isLazy) {
  auto *api = static_cast<const DLPackExchangeAPI *>(table);
  if (api->major != 1 || !api->tensorFromPython || !api->currentStream)
    return 0;
  stepOf(self).tensors[index].types.push_back({type, api, isLazy});
  return 1;
}

/// Where to launch: addresses of the driver's functions, the kernel and the context. Nulls end all launches.
TK_EXPORT void tk_call_set_cuda(PyObject *self, void *launch, void *isCapturing, void *currentContext, void *function,
                                void *context) {
  Cuda &cuda = stepOf(self).cuda;
  cuda.launch = reinterpret_cast<decltype(cuda.launch)>(launch);
  cuda.isCapturing = reinterpret_cast<decltype(cuda.isCapturing)>(isCapturing);
  cuda.currentContext = reinterpret_cast<decltype(cuda.currentContext)>(currentContext);
  cuda.function = function;
  cuda.context = context;
}

/// Adds what launches on a stream need; the configuration must live as long as the step.
TK_EXPORT void tk_call_add_lane(PyObject *self, void *stream, const void *config, uint64_t workspace) {
  stepOf(self).lanes.push_back({stream, config, workspace});
}

/// The function `read` (0) or `launch` (1) of a step.
TK_EXPORT PyObject *tk_call_function(PyObject *self, int32_t which) {
  return PyCFunction_NewEx(which ? &launchMethod : &readMethod, self, nullptr);
}

/// A function that watches inputs, given which they are and where they lie.
TK_EXPORT PyObject *tk_call_watch(PyObject *self, const int64_t *inputs, const uint64_t *addresses, int64_t count) {
  auto *watch = new Watch{self, {}};
  for (int64_t i = 0; i < count; ++i)
    watch->places.emplace_back(inputs[i], addresses[i]);
  Py_IncRef(self);
  PyObject *capsule = PyCapsule_New(watch, nullptr, destroyWatch);
  PyObject *function = PyCFunction_NewEx(&watchMethod, capsule, nullptr);
  Py_DecRef(capsule);
  return function;
}
