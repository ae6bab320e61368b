//===- StepTensors.cpp - The tensors of a call ----------------------------===//

#include "StepTensors.h"

#include <algorithm>

using namespace trainkernel;

namespace {

const TensorType *findType(const Tensor &tensor, PyObject *object) {
  PyObject *type = typeOf(object);
  for (const TensorType &known : tensor.types)
    if (known.type == type)
      return &known;
  return nullptr;
}

/// What DLPack tells of a tensor; false where it tells nothing.
bool describe(const TensorType &type, PyObject *object, DLTensor &given) {
  if (!type.direct) {
    if (type.api->tensorFromPython(object, &given) == 0)
      return true;
    PyErr_Clear();
    return false;
  }
  try {
    type.direct->read(type.direct->find(object), &given);
  } catch (...) {
    // It may have come from Python code.
    PyErr_Clear();
    return false;
  }
  return true;
}

/// Whether a tensor of the right shape lies in memory as it was compiled to.
bool liesAs(const Tensor &wanted, const DLTensor &given) {
  int64_t rowMajor = 1;
  for (int32_t axis = given.rank - 1; axis >= 0; --axis) {
    int64_t stride = given.strides ? given.strides[axis] : rowMajor;
    // An axis of one element has any stride.
    if (given.shape[axis] != 1 && stride != wanted.strides[axis])
      return false;
    rowMajor *= given.shape[axis];
  }
  return true;
}

bool isLazy(const TensorPlace &place, const TensorType &type, PyObject *object) {
  if (type.direct)
    return type.direct->isLazy(type.direct->find(object));
  if (!type.isLazy)
    return false;
  PyObject *answer = PyObject_Vectorcall(type.isLazy, &object, 1, nullptr);
  if (!answer) {
    PyErr_Clear();
    return true;
  }
  Py_DecRef(answer);
  return answer != place.false_;
}

} // namespace

bool trainkernel::readTensor(const TensorPlace &place, const Tensor &wanted, PyObject *object, Found &found) {
  const TensorType *type = findType(wanted, object);
  DLTensor given;
  if (!type || !describe(*type, object, given))
    return false;
  if (given.code != wanted.code || given.bits != wanted.bits || given.lanes != 1 ||
      given.deviceType != place.deviceType || given.deviceID != place.deviceID ||
      given.rank != static_cast<int32_t>(wanted.shape.size()) ||
      !std::equal(wanted.shape.begin(), wanted.shape.end(), given.shape))
    return false;
  uint64_t address = reinterpret_cast<uint64_t>(given.data) + given.byteOffset;
  if ((address & wanted.alignmentMask) || (wanted.bytes && (!address || !liesAs(wanted, given))))
    return false;
  found = {address, type->direct};
  return !isLazy(place, *type, object);
}

const DirectAccess *trainkernel::accessOf(const Tensor &place, PyObject *object) {
  const TensorType *type = findType(place, object);
  return type ? type->direct : nullptr;
}

bool trainkernel::markWritten(const DirectAccess &direct, PyObject *object) {
  const void *tensor = direct.find(object);
  try {
    if (!direct.isUnversioned(tensor))
      direct.bumpVersion(tensor);
  } catch (...) {
    PyErr_Clear();
    return false;
  }
  return true;
}
