//===- StepCall.cpp - From Python tensors to a launch ---------------------===//
//
// The usual call of a step: finds the tensors among the arguments, checks each
// against the manifest, gathers the addresses, launches the kernel and makes the
// result. Where anything does not certainly fit it says "look closer", having
// changed nothing; trainkernel.runtime, which can do all of this by itself, then
// decides and words the error. Nothing is remembered of a caller's tensors.
//
//===----------------------------------------------------------------------===//

#include "StepTensors.h"
#include "StepTree.h"

#include <algorithm>
#include <cstring>
#include <utility>

using namespace trainkernel;

namespace {

//===----------------------------------------------------------------------===//
// A step
//===----------------------------------------------------------------------===//

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
  TensorPlace place;
  size_t numInputs;
  std::vector<Tensor> tensors; // Inputs, then outputs.
  /// The result of a call that donates may hold tuples of the arguments, if these are made of donated tensors alone.
  Tree arguments, result, donatedResult;
  size_t numKept = 0;
  /// What a call returns to say "look closer"; a function of a list of tensors that were written.
  PyObject *lookCloser, *markWritten;
  /// Owned: holds all that is borrowed here.
  PyObject *kept = nullptr;
  Cuda cuda;
  std::vector<Lane> lanes;
  /// The inputs of the last donation that was found free of overlaps.
  std::vector<uint64_t> disjoint;

  ~StepCall() noexcept(false) { release(&kept, kept ? 1 : 0); }
};

/// Results besides CUDA's own errors, which are positive.
enum Status : long { Launched = 0, LookCloser = -1, LaunchInPython = -2 };

/// Behind the tensors: the workspace, the steps of a launch and the entries of each batch. A function that runs one
/// step does not take the last two.
constexpr size_t kExtraParameters = 3;

/// Parameters of one call: addresses, pointers to them.
class Parameters {
public:
  explicit Parameters(size_t count) : count(count), values(2 * count) {}
  uint64_t &operator[](size_t index) { return values[index]; }
  const uint64_t *data() const { return values.data(); }
  void **pointers() {
    uint64_t *list = values.data() + count;
    for (size_t i = 0; i < count; ++i)
      list[i] = reinterpret_cast<uint64_t>(values.data() + i);
    return reinterpret_cast<void **>(list);
  }

private:
  size_t count;
  Scratch<uint64_t> values;
};

/// How to tell the framework about each input, or null.
using Accesses = Scratch<const DirectAccess *>;

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

/// Reads the inputs and the outputs; with donation, some of these are inputs.
bool readAll(StepCall &step, PyObject *const *tensors, bool donate, Parameters &values, Accesses &accesses) {
  Found found;
  for (size_t i = 0; i < step.numInputs; ++i) {
    if (!readTensor(step.place, step.tensors[i], tensors[i], found))
      return false;
    values[i] = found.address;
    accesses[i] = found.direct;
  }
  if (donate && !areDisjoint(step, values))
    return false;
  for (size_t i = step.numInputs; i < step.tensors.size(); ++i) {
    const Tensor &output = step.tensors[i];
    if (donate && output.updates >= 0)
      values[i] = values[output.updates];
    else if (readTensor(step.place, output, tensors[i], found))
      values[i] = found.address;
    else
      return false;
  }
  return true;
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
  if (first.api->currentStream(step.place.deviceType, step.place.deviceID, &stream) != 0) {
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

/// read(tensors): a list of all addresses, or -1.
PyObject *callRead(PyObject *self, PyObject *const *args, intptr_t count) {
  StepCall &step = stepOf(self);
  intptr_t size = static_cast<intptr_t>(step.tensors.size());
  Parameters values(step.tensors.size() + kExtraParameters);
  Accesses accesses(step.numInputs);
  References tensors(step.tensors.size());
  if (count != 1 || PyList_Size(args[0]) != size)
    return PyLong_FromLong(LookCloser);
  for (intptr_t i = 0; i < size; ++i)
    tensors.add(Owned::share(PyList_GetItem(args[0], i)));
  if (!readAll(step, tensors.data(), false, values, accesses))
    return PyLong_FromLong(LookCloser);
  PyObject *list = PyList_New(size);
  for (intptr_t i = 0; list && i < size; ++i)
    PyList_SetItem(list, i, PyLong_FromUnsignedLongLong(values[i]));
  return list;
}

/// Adds the outputs to the inputs; false with a Python exception.
bool addOutputs(const StepCall &step, bool donate, References &tensors) {
  for (size_t i = step.numInputs; i < step.tensors.size(); ++i) {
    const Tensor &output = step.tensors[i];
    bool inPlace = donate && output.updates >= 0;
    PyObject *tensor =
        inPlace ? Owned::share(tensors.data()[output.updates]) : PyObject_Vectorcall(output.make, nullptr, 0, nullptr);
    if (!tensor)
      return false;
    tensors.add(tensor);
  }
  return true;
}

/// Tells the framework that the donated inputs were written; false with a Python exception.
bool markAll(const StepCall &step, PyObject *const *tensors, Accesses &accesses) {
  std::vector<PyObject *> rest;
  for (size_t i = step.numInputs; i < step.tensors.size(); ++i) {
    int64_t input = step.tensors[i].updates;
    if (input >= 0 && !(accesses[input] && markWritten(*accesses[input], tensors[input])))
      rest.push_back(tensors[input]);
  }
  if (rest.empty())
    return true;
  Owned list(PyList_New(static_cast<intptr_t>(rest.size())));
  if (!list)
    return false;
  for (size_t i = 0; i < rest.size(); ++i)
    PyList_SetItem(list.get(), static_cast<intptr_t>(i), Owned::share(rest[i]));
  PyObject *argument = list.get();
  return static_cast<bool>(Owned(PyObject_Vectorcall(step.markWritten, &argument, 1, nullptr)));
}

/// Lets Python settle what native code could not launch; false with a Python exception.
bool settle(PyObject *settler, long status, const Parameters &values) {
  Owned number(PyLong_FromLong(status));
  Owned place(PyLong_FromUnsignedLongLong(reinterpret_cast<uint64_t>(values.data())));
  if (!number || !place)
    return false;
  PyObject *arguments[] = {number.get(), place.get()};
  return static_cast<bool>(Owned(PyObject_Vectorcall(settler, arguments, 2, nullptr)));
}

/// The step's result, "look closer", or null with a Python exception.
PyObject *callStep(StepCall &step, PyObject *settler, PyObject *arguments, bool donate) {
  References tensors(step.tensors.size()), kept(step.numKept);
  if (!step.arguments.takeApart(arguments, tensors, kept))
    return Owned::share(step.lookCloser);
  // Before the checks: it may run any Python code.
  if (!addOutputs(step, donate, tensors))
    return nullptr;
  Parameters values(step.tensors.size() + kExtraParameters);
  Accesses accesses(step.numInputs);
  if (!readAll(step, tensors.data(), donate, values, accesses))
    return Owned::share(step.lookCloser);
  long status = launch(step, values);
  if (status != Launched && !settle(settler, status, values))
    return nullptr;
  if (donate && !markAll(step, tensors.data(), accesses))
    return nullptr;
  const Tree &result = donate ? step.donatedResult : step.result;
  return result.putTogether(tensors.data() + step.numInputs, kept);
}

/// functional(settler, arguments), donating(settler, arguments): see callStep. The settler is given a status other than
/// 0, a CUDA error or LaunchInPython, and where the addresses of all tensors lie meanwhile; it launches or raises.
PyObject *callFunctional(PyObject *self, PyObject *const *args, intptr_t count) {
  StepCall &step = stepOf(self);
  return count == 2 ? callStep(step, args[0], args[1], false) : Owned::share(step.lookCloser);
}

PyObject *callDonating(PyObject *self, PyObject *const *args, intptr_t count) {
  StepCall &step = stepOf(self);
  return count == 2 ? callStep(step, args[0], args[1], true) : Owned::share(step.lookCloser);
}

/// Tensors of a captured program.
struct Watch {
  PyObject *step;
  std::vector<std::pair<int64_t, uint64_t>> places; // Which tensor of the step, and its address.

  bool fits(PyObject *const *args, intptr_t count) const {
    return count == 1 && PyList_Size(args[0]) == static_cast<intptr_t>(places.size());
  }
};

/// watch(tensors): whether all are as they were.
PyObject *callWatch(PyObject *self, PyObject *const *args, intptr_t count) {
  const Watch &watch = *static_cast<Watch *>(PyCapsule_GetPointer(self, nullptr));
  const StepCall &step = stepOf(watch.step);
  bool same = watch.fits(args, count);
  for (size_t i = 0; same && i < watch.places.size(); ++i) {
    Found found;
    auto [index, wanted] = watch.places[i];
    same = readTensor(step.place, step.tensors[index], PyList_GetItem(args[0], i), found) && found.address == wanted;
  }
  return PyBool_FromLong(same);
}

/// mark(tensors): whether the framework was told of all that they were written.
PyObject *callMark(PyObject *self, PyObject *const *args, intptr_t count) {
  const Watch &watch = *static_cast<Watch *>(PyCapsule_GetPointer(self, nullptr));
  const StepCall &step = stepOf(watch.step);
  bool told = watch.fits(args, count);
  for (size_t i = 0; told && i < watch.places.size(); ++i) {
    PyObject *tensor = PyList_GetItem(args[0], i);
    const DirectAccess *access = accessOf(step.tensors[watch.places[i].first], tensor);
    told = access && markWritten(*access, tensor);
  }
  return PyBool_FromLong(told);
}

PyMethodDef readMethod = {"read", callRead, kFastCall, "addresses of the tensors of a call"};
PyMethodDef functionalMethod = {"functional", callFunctional, kFastCall, "call the step; all results are fresh"};
PyMethodDef donatingMethod = {"donating", callDonating, kFastCall, "call the step; the state is updated in place"};
PyMethodDef watchMethod = {"watch", callWatch, kFastCall, "whether tensors lie where they lay"};
PyMethodDef markMethod = {"mark", callMark, kFastCall, "tell the framework that tensors were written"};

void destroy(PyObject *capsule) { delete static_cast<StepCall *>(PyCapsule_GetPointer(capsule, nullptr)); }

void destroyWatch(PyObject *capsule) {
  auto *watch = static_cast<Watch *>(PyCapsule_GetPointer(capsule, nullptr));
  Py_DecRef(watch->step);
  delete watch;
}

} // namespace

//===----------------------------------------------------------------------===//
// Interface, called through ctypes with the GIL held
//===----------------------------------------------------------------------===//

#define TK_EXPORT extern "C" __attribute__((visibility("default")))

/// The version of this interface, or 0 where there is no Python.
TK_EXPORT int32_t tk_call_version() { return hasPython() ? 4 : 0; }

/// A capsule that holds a step without tensors. `kept` holds every object that this and the other functions are given;
/// for the others see StepCall.
TK_EXPORT PyObject *tk_call_new(int32_t deviceType, int32_t deviceID, int64_t numInputs, PyObject *false_,
                                PyObject *lookCloser, PyObject *markWritten, PyObject *kept) {
  auto *step = new StepCall{};
  step->place = {deviceType, deviceID, false_};
  step->numInputs = static_cast<size_t>(numInputs);
  step->lookCloser = lookCloser;
  step->markWritten = markWritten;
  step->kept = Owned::share(kept);
  return PyCapsule_New(step, nullptr, destroy);
}

/// Adds a tensor: the inputs first, then the outputs.
TK_EXPORT void tk_call_add_tensor(PyObject *self, uint8_t code, uint8_t bits, const int64_t *shape,
                                  const int64_t *strides, int64_t rank, uint64_t alignment, uint64_t bytes,
                                  int64_t updates, PyObject *make) {
  Tensor tensor{code, bits, {shape, shape + rank}, {strides, strides + rank}, alignment - 1, bytes, updates, {}, make};
  stepOf(self).tensors.push_back(std::move(tensor));
}

/// Allows a type of tensor at a place; returns whether its exchange API is one that we know.
TK_EXPORT int32_t tk_call_add_type(PyObject *self, int64_t index, PyObject *type, const void *table, PyObject *isLazy,
                                   const void *direct) {
  auto *api = static_cast<const DLPackExchangeAPI *>(table);
  if (api->major != 1 || !api->tensorFromPython || !api->currentStream)
    return 0;
  stepOf(self).tensors[index].types.push_back({type, api, isLazy, static_cast<const DirectAccess *>(direct)});
  return 1;
}

/// Adds a node to the tree of the arguments (0), of the result (1) or of that of a call that donates (2); see Tree.
TK_EXPORT void tk_call_add_node(PyObject *self, int32_t which, int32_t kind, int64_t children, PyObject *object,
                                PyObject *helper, int64_t index) {
  StepCall &step = stepOf(self);
  Tree *trees[] = {&step.arguments, &step.result, &step.donatedResult};
  trees[which]->add(static_cast<TreeKind>(kind), static_cast<size_t>(children), object, helper, index);
  step.numKept = step.arguments.numKept();
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

/// The function `read` (0), `functional` (1) or `donating` (2) of a step.
TK_EXPORT PyObject *tk_call_function(PyObject *self, int32_t which) {
  PyMethodDef *methods[] = {&readMethod, &functionalMethod, &donatingMethod};
  return PyCFunction_NewEx(methods[which], self, nullptr);
}

/// The function `watch` (0) or `mark` (1), given which tensors of the step there are and where they lie.
TK_EXPORT PyObject *tk_call_watch(PyObject *self, const int64_t *indices, const uint64_t *addresses, int64_t count,
                                  int32_t which) {
  auto *watch = new Watch{Owned::share(self), {}};
  for (int64_t i = 0; i < count; ++i)
    watch->places.emplace_back(indices[i], addresses[i]);
  Owned capsule(PyCapsule_New(watch, nullptr, destroyWatch));
  return PyCFunction_NewEx(which ? &markMethod : &watchMethod, capsule.get(), nullptr);
}
