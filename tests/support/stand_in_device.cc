#include "tests/support/stand_in_device.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/InferSize.h>
#include <ATen/TensorUtils.h>
#include <ATen/detail/HPUHooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <cstdlib>

#include "tests/support/recording.h"

// LibTorch has the device type HPU (Habana's) but no operators for it.  They are registered here.
namespace clover::test {
namespace {

using at::HPUHooksRegistry, at::RegistererHPUHooksRegistry;

constexpr at::DeviceType type = at::kHPU;
const at::Device device{type, 0};

int64_t waits = 0, uploads = 0;
std::vector<int64_t> launch_counts_at_waits;

struct Allocator final : at::Allocator {
  at::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &std::free, device};
    const size_t rounded = (bytes + 255) / 256 * 256;
    void* const memory = std::aligned_alloc(256, rounded);
    fill_with_nan(memory, rounded);
    if (recording == nullptr) return {memory, memory, &std::free, device};
    recording->memory.push_back({{memory, &std::free}, rounded});  // freed with the graph
    return {memory, memory, [](void*) {}, device};
  }
  at::DeleterFnPtr raw_deleter() const override { return &std::free; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};
Allocator allocator;

struct Guard final : c10::impl::DeviceGuardImplInterface {
  at::DeviceType type() const override { return test::type; }
  at::Device exchangeDevice(at::Device) const override { return device; }
  at::Device getDevice() const override { return device; }
  void setDevice(at::Device) const override {}
  void uncheckedSetDevice(at::Device) const noexcept override {}
  c10::Stream getStream(at::Device) const override { return c10::Stream(c10::Stream::DEFAULT, device); }
  c10::Stream exchangeStream(c10::Stream) const override { return c10::Stream(c10::Stream::DEFAULT, device); }
  at::DeviceIndex deviceCount() const noexcept override { return 1; }
};
C10_REGISTER_GUARD_IMPL(HPU, Guard)

// What autograd and at::manual_seed ask about a device.
struct Hooks final : at::HPUHooksInterface {
  explicit Hooks(at::HPUHooksArgs = {}) {}
  bool hasHPU() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(at::DeviceIndex) const override { return true; }
  void init() const override {}
  at::DeviceIndex deviceCount() const override { return 1; }
  at::DeviceIndex getCurrentDevice() const override { return 0; }
  const at::Generator& getDefaultGenerator(at::DeviceIndex) const override {
    static const at::Generator generator = at::detail::createCPUGenerator();
    return generator;
  }
};
C10_REGISTER_CLASS(HPUHooksRegistry, HPUHooks, Hooks)

/// The same memory as a tensor of the CPU.
at::Tensor on_cpu(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return tensor;
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(),
                       tensor.options().device(at::kCPU));
}

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                 std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(size, &allocator, c10::DispatchKeySet(c10::DispatchKey::HPU),
                                   c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(
      size, stride, &allocator, c10::DispatchKeySet(c10::DispatchKey::HPU), c10::dtype_or_default(dtype));
}

at::Tensor view_of(const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride,
                   std::optional<int64_t> offset) {
  at::Tensor view = at::detail::make_tensor<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(self.storage()), self.key_set(), self.dtype());
  auto* const impl = view.unsafeGetTensorImpl();
  impl->set_storage_offset(offset.value_or(self.storage_offset()));
  impl->set_sizes_and_strides(size, stride);
  return view;
}

at::Tensor reshape_alias(const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride) {
  return view_of(self, size, stride, self.storage_offset());
}

at::Tensor view(const at::Tensor& self, at::IntArrayRef size) {
  const std::vector<int64_t> inferred = at::infer_size(size, self.numel());
  const auto stride = at::detail::computeStride(self.sizes(), self.strides(), inferred);
  TORCH_CHECK(stride.has_value(), "view: ", self.sizes(), " cannot be viewed as ", size);
  return view_of(self, inferred, *stride, self.storage_offset());
}

at::Tensor& copy_(at::Tensor& self, const at::Tensor& source, bool) {
  const bool waits_for_it = self.is_cpu() || source.is_cpu();
  TORCH_CHECK(recording == nullptr || !waits_for_it, "a graph cannot wait for a copy");
  waits += waits_for_it;
  run_or_record([to = on_cpu(self), from = on_cpu(source)] { to.copy_(from); });
  return self;
}

at::Tensor copy_from(const at::Tensor& source, const at::Tensor& to, bool) {
  at::Tensor self = to;
  return copy_(self, source, false);
}

at::Tensor copy_from_and_resize(const at::Tensor& source, const at::Tensor& to) {
  if (to.sizes() != source.sizes()) to.resize_(source.sizes());
  on_cpu(to).copy_(on_cpu(source));
  return to;
}

const at::Tensor& resize(const at::Tensor& self, at::IntArrayRef size, std::optional<at::MemoryFormat>) {
  auto* const impl = self.unsafeGetTensorImpl();
  impl->set_sizes_contiguous(size);
  const size_t bytes = static_cast<size_t>(self.numel()) * self.element_size();
  if (self.storage().nbytes() < bytes) {
    self.storage().set_data_ptr_noswap(allocator.allocate(bytes));
    self.storage().set_nbytes(bytes);
  }
  return self;
}

at::Scalar local_scalar(const at::Tensor& self) {
  TORCH_CHECK(recording == nullptr, "a graph cannot wait for a number");
  ++waits;
  return on_cpu(self).item();
}

using Values = std::vector<c10::IValue>;

void check_arguments(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments) {
  const auto check = [&](const at::Tensor& tensor) {
    TORCH_CHECK(!tensor.defined() || !tensor.is_cpu() || tensor.dim() == 0, schema.name(),
                ": a tensor is on the CPU, others are on the device");
  };
  for (const c10::IValue& argument : arguments) {
    if (argument.isTensor()) check(argument.toTensor());
    if (argument.isTensorList())
      for (const at::Tensor& tensor : argument.toTensorList()) check(tensor);
  }
}

void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const int64_t waits_before = waits, launches_before = launches;
  at::native::cpu_fallback(op, stack);
  waits = waits_before;  // the fallback's own copies do not count
  launches = launches_before;
}

/// `value` with zeros on the CPU in place of the device's tensors, whose values are not known while a graph
/// is recorded.  Tensors of the CPU (numbers that are passed as tensors) stay as they are.
c10::IValue zeros_for(const c10::IValue& value) {
  const auto zeros = [](const at::Tensor& tensor) {
    return tensor.defined() && !tensor.is_cpu() ? at::zeros(tensor.sizes(), tensor.options().device(at::kCPU))
                                                : tensor;
  };
  if (value.isTensor()) return zeros(value.toTensor());
  if (!value.isTensorList()) return value;
  c10::List<at::Tensor> list;
  for (const at::Tensor& tensor : value.toTensorList()) list.push_back(zeros(tensor));
  return list;
}

/// The arguments that an operator writes to, which it also returns.
Values written_arguments(const c10::FunctionSchema& schema, const Values& arguments) {
  Values written;
  for (size_t i = 0; i < arguments.size() && written.size() < schema.returns().size(); ++i) {
    const c10::AliasInfo* alias = schema.arguments()[i].alias_info();
    if (alias != nullptr && alias->isWrite()) written.push_back(arguments[i]);
  }
  return written;
}

/// Uninitialised tensors of the graph with the shapes of what the operator returns.
Values empty_results(const c10::OperatorHandle& op, const Values& arguments) {
  Values results;
  for (const c10::IValue& argument : arguments) results.push_back(zeros_for(argument));
  op.callBoxed(&results);
  for (c10::IValue& result : results) {
    const at::Tensor like = result.toTensor();
    result = at::empty_strided(like.sizes(), like.strides(), like.options().device(device));
  }
  return results;
}

/// Adds `op` to the graph, and returns the tensors that a replay will write its results to.
void record_operator(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  TORCH_CHECK(!op.hasTag(at::Tag::data_dependent_output) && !op.hasTag(at::Tag::dynamic_output_shape),
              schema.name(), ": a graph cannot hold what waits for the device");
  const Values arguments = torch::jit::pop(*stack, schema.arguments().size());
  const bool writes = schema.is_mutable();
  const Values results = writes ? written_arguments(schema, arguments) : empty_results(op, arguments);
  recording->steps.push_back([op, arguments, results, writes] {
    torch::jit::Stack values = arguments;
    run_on_cpu(op, &values);
    for (size_t i = 0; i < results.size() && !writes; ++i)
      on_cpu(results[i].toTensor()).copy_(on_cpu(values[i].toTensor()));
  });
  stack->insert(stack->end(), results.begin(), results.end());
}

/// Runs any other operator on the CPU.  Throws if its arguments are on two devices.
void run_other_operator(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  check_arguments(op.schema(), torch::jit::last(stack, op.schema().arguments().size()));
  if (recording != nullptr) return record_operator(op, stack);
  ++launches;
  run_on_cpu(op, stack);
}

TORCH_LIBRARY_IMPL(aten, HPU, library) {
  library.impl("empty.memory_format", empty);
  library.impl("empty_strided", empty_strided);
  library.impl("as_strided", view_of);
  library.impl("view", view);
  library.impl("_reshape_alias", reshape_alias);
  library.impl("copy_", copy_);
  library.impl("_copy_from", copy_from);
  library.impl("_copy_from_and_resize", copy_from_and_resize);
  library.impl("resize_", resize);
  library.impl("_local_scalar_dense", local_scalar);
}

TORCH_LIBRARY_IMPL(_, HPU, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&run_other_operator>());
}

}  // namespace

Recording* recording = nullptr;
int64_t launches = 0;

at::Device stand_in_device() {
  c10::SetAllocator(type, &allocator);
  return device;
}

int64_t waits_for_stand_in() {
  return waits;
}
void queue_copy(const at::Tensor& from, at::Tensor& to) {
  TORCH_CHECK(recording == nullptr, "a graph cannot hold a copy from or to the CPU");
  uploads += from.is_cpu();
  on_cpu(to).copy_(on_cpu(from));
}
void count_wait() {
  ++waits;
  launch_counts_at_waits.push_back(launches);
}
std::vector<int64_t>& launches_at_waits() {
  return launch_counts_at_waits;
}
int64_t launches_on_stand_in() {
  return launches;
}
int64_t uploads_to_stand_in() {
  return uploads;
}

}  // namespace clover::test
