#include "train/run/operation_count.h"

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

#include <atomic>
#include <string_view>

namespace clover::train {
namespace {

std::atomic<double> counted{0};

/// Multiply-adds of a product [.., n, k] x [.., k, m], counted twice.
double operations_of(const at::Tensor& left, const at::Tensor& right) {
  return 2.0 * static_cast<double>(left.numel()) * static_cast<double>(right.size(-1));
}

/// Where the left operand is among the arguments of a product; -1: the operator is none.  Other products of
/// LibTorch (linear, matmul, einsum) are made of these.
int left_operand(std::string_view name) {
  if (name == "aten::mm" || name == "aten::bmm") return 0;
  if (name == "aten::addmm" || name == "aten::baddbmm") return 1;
  return -1;
}

std::unique_ptr<at::ObserverContext> count(const at::RecordFunction& call) {
  const int left = left_operand(call.name());
  if (left < 0) return nullptr;
  const auto inputs = call.inputs();
  if (inputs.size() < static_cast<size_t>(left) + 2) return nullptr;
  const auto& a = inputs[static_cast<size_t>(left)];
  const auto& b = inputs[static_cast<size_t>(left) + 1];
  if (a.isTensor() && b.isTensor() && a.toTensor().defined() && b.toTensor().defined())
    counted.fetch_add(operations_of(a.toTensor(), b.toTensor()));
  return nullptr;
}

}  // namespace

OperationCount::OperationCount() {
  counted = 0;
  handle_ = at::addGlobalCallback(
      at::RecordFunctionCallback(&count).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
}

OperationCount::~OperationCount() {
  at::removeCallback(handle_);
}

double OperationCount::operations() const {
  return counted;
}

}  // namespace clover::train
