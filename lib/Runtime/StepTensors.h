//===- StepTensors.h - The tensors of a call ------------------------------===//
//
// Checks the tensors of a call against the manifest and finds their addresses.
// A tensor is only ever found to fit, or left to Python to look closer at.
// Nothing is remembered of it.
//
// Tensors are read through DLPack's C exchange API, and what that does not tell
// through their framework; where the framework has functions for both that spare
// calls through Python, through those: see DirectAccess.
//
//===----------------------------------------------------------------------===//

#ifndef TRAINKERNEL_LIB_RUNTIME_STEPTENSORS_H
#define TRAINKERNEL_LIB_RUNTIME_STEPTENSORS_H

#include "StablePython.h"

namespace trainkernel {

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

/// Functions of a framework on its own tensor inside of a Python object. Calls through Python would cost more than all
/// else that is done for a tensor.
struct DirectAccess {
  /// Where in the object the framework's tensor is.
  uint64_t place;
  /// As DLPackExchangeAPI::tensorFromPython does it; may throw.
  void (*read)(const void *tensor, DLTensor *out);
  /// Whether the values are not what the memory says.
  bool (*isLazy)(const void *tensor);
  /// Whether the tensor has no version.
  bool (*isUnversioned)(const void *tensor);
  /// Tells that the tensor was written; may throw.
  void (*bumpVersion)(const void *tensor);

  const void *find(PyObject *object) const { return reinterpret_cast<const char *>(object) + place; }
};

/// A type of tensor that may be passed. All is borrowed from StepCall::kept.
struct TensorType {
  PyObject *type;
  const DLPackExchangeAPI *api;
  /// As in DirectAccess, but a Python function; or null where tensors are never lazy.
  PyObject *isLazy;
  /// Or null, where the framework has no such functions.
  const DirectAccess *direct;
};

struct Tensor {
  uint8_t code, bits;
  std::vector<int64_t> shape, strides;
  uint64_t alignmentMask;
  uint64_t bytes; // From the first element to the last one.
  /// Of an output, the input whose place it may take, or -1.
  int64_t updates = -1;
  std::vector<TensorType> types;
  /// Of an output, the Python function that makes one.
  PyObject *make = nullptr;
};

/// Where all tensors of a step must be, and Python's False.
struct TensorPlace {
  int32_t deviceType, deviceID;
  PyObject *false_;
};

/// What is found of a tensor that fits.
struct Found {
  uint64_t address = 0;
  /// Of its type.
  const DirectAccess *direct = nullptr;
};

/// Whether a tensor certainly fits. Leaves no Python exception.
bool readTensor(const TensorPlace &place, const Tensor &wanted, PyObject *object, Found &found);

/// The functions for a tensor, or null.
const DirectAccess *accessOf(const Tensor &place, PyObject *object);

/// Tells the framework that a tensor was written; false if its functions fail. Leaves no Python exception.
bool markWritten(const DirectAccess &direct, PyObject *object);

} // namespace trainkernel

#endif // TRAINKERNEL_LIB_RUNTIME_STEPTENSORS_H
