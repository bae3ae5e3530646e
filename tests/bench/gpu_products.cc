#include "tests/bench/gpu_products.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <string>

#include "infer/bench/bench.h"
#include "infer/program/machine.h"
#include "kernels/gpu/gpu.h"
#include "kernels/gpu/graph.h"
#include "kernels/linear/linear.h"

namespace clover::bench {
namespace {

using kernels::PackedWeight;
using nlohmann::json;

struct ModelShape {
  std::string name;
  int64_t hidden, intermediate, query_heads, kv_heads, head_size, vocab;

  int64_t qkv() const { return (query_heads + 2 * kv_heads) * head_size; }
};

const std::vector<ModelShape> models{{"7B", 4096, 11008, 32, 32, 128, 32000},
                                     {"8B", 4096, 14336, 32, 8, 128, 128256}};
const ModelShape small_model{"small", 64, 160, 2, 1, 32, 200};

constexpr int64_t page_size = 64;
constexpr double beyond_cache = 2e8;  // bytes, several times an H100's second-level cache
constexpr double a_recording = 2e9;   // bytes read by the products of a graph, about a millisecond

/// A matrix as often as no cache holds all of them.  Any numbers do: they repeat, as drawing them all would
/// take minutes.
std::vector<PackedWeight> weights_of(int64_t outputs, int64_t inputs, at::Device gpu) {
  const at::Tensor some = at::randn({std::min<int64_t>(outputs, 256), inputs}).to(at::kBFloat16);
  const at::Tensor matrix =
      some.repeat({(outputs + some.size(0) - 1) / some.size(0), 1}).narrow(0, 0, outputs);
  const PackedWeight packed = PackedWeight::pack({matrix.contiguous()});
  const double copies = std::ceil(beyond_cache / static_cast<double>(packed.bytes()));
  std::vector<PackedWeight> weights;
  for (int i = 0; i < std::min(8, static_cast<int>(copies)); ++i) weights.push_back(packed.to(gpu));
  return weights;
}

struct Product {
  std::string name;
  std::vector<PackedWeight> weights;
  std::function<void(const PackedWeight&)> run;

  double bytes() const { return static_cast<double>(weights[0].bytes()); }
  double operations() const { return 2.0 * static_cast<double>(weights[0].outputs() * weights[0].inputs()); }
  void run_turn(int64_t turn) const { run(weights[turn % std::ssize(weights)]); }
};

/// What the products of `rows` rows read and write beside weights.
struct Activations {
  at::Tensor hidden, inner, residual, angles, slots, q, k, v;

  Activations(const ModelShape& model, int64_t rows, at::Device gpu) {
    const auto bf16 = at::TensorOptions(at::kBFloat16).device(gpu), fp32 = bf16.dtype(at::kFloat);
    const auto on_gpu = [&](const at::Tensor& tensor) { return kernels::to_device(tensor, gpu); };
    hidden = on_gpu(at::randn({rows, model.hidden}).to(at::kBFloat16));
    inner = on_gpu(at::randn({rows, model.intermediate}).to(at::kBFloat16));
    residual = on_gpu(at::zeros({rows, model.hidden}));
    angles = on_gpu(at::rand({rows, model.head_size / 2}));
    slots = on_gpu(at::arange(rows, at::kLong));
    q = at::empty({rows, model.query_heads, model.head_size}, fp32);
    k = at::empty({(rows + page_size - 1) / page_size, model.kv_heads, page_size, model.head_size}, bf16);
    v = at::empty_like(k);
  }
};

/// The products of a layer, then that with the vocabulary.
std::vector<Product> products_of(const ModelShape& model, at::Device gpu, const Activations*& now) {
  std::vector<Product> products;
  products.push_back(
      {"query-key-value", weights_of(model.qkv(), model.hidden, gpu), [&now](const PackedWeight& w) {
         at::Tensor q = now->q, k = now->k, v = now->v;
         kernels::linear_rope_and_store(now->hidden, {w}, now->angles, now->angles, now->slots, q, k, v);
       }});
  products.push_back({"output", weights_of(model.hidden, model.query_heads * model.head_size, gpu),
                      [&now](const PackedWeight& w) {
                        at::Tensor y = now->residual;
                        kernels::linear(now->hidden, w, {}, y, /*accumulate=*/true);
                      }});
  products.push_back(
      {"gate-up", weights_of(2 * model.intermediate, model.hidden, gpu), [&now](const PackedWeight& w) {
         at::Tensor out = now->inner;
         kernels::linear_silu_mul(now->hidden, w, out);
       }});
  products.push_back(
      {"down", weights_of(model.hidden, model.intermediate, gpu), [&now](const PackedWeight& w) {
         at::Tensor y = now->residual;
         kernels::linear(now->inner, w, {}, y, /*accumulate=*/true);
       }});
  products.push_back({"vocabulary", weights_of(model.vocab, model.hidden, gpu),
                      [&now](const PackedWeight& w) { kernels::linear_arg_max(now->hidden, w); }});
  return products;
}

/// Of one of `times` runs of `body`, each told its number: the median of rounds of a recording of all, by the
/// GPU's clock, behind a first one that hides how it is started.
double seconds_of(at::Device gpu, int rounds, int64_t times, const std::function<void(int64_t)>& body) {
  body(0);  // kernels must have run before they are recorded
  const auto graph = kernels::Graph::capture(gpu, kernels::Graph::Pool::passes, [&] {
    for (int64_t i = 0; i < times; ++i) body(i);
  });
  std::vector<double> seconds;
  graph->replay();
  for (int round = 0; round < rounds; ++round) {
    const auto begin = kernels::record_event(gpu);
    graph->replay();
    const auto end = kernels::record_event(gpu);
    graph->replay();
    end->wait();
    seconds.push_back(end->seconds_since(*begin));
  }
  kernels::synchronize(gpu);
  return infer::median(seconds) / static_cast<double>(times);
}

int64_t times_for(double bytes) {
  return std::clamp<int64_t>(static_cast<int64_t>(a_recording / bytes), 2, 64);
}

json entry_of(const ModelShape& model, const std::string& product, int64_t rows, double seconds, double bytes,
              double operations, double bandwidth) {
  json entry{{"shape", model.name},
             {"product", product},
             {"rows", rows},
             {"microseconds", seconds * 1e6},
             {"of_bandwidth", bytes / bandwidth / seconds},
             {"teraflops", operations * static_cast<double>(rows) / seconds / 1e12}};
  std::printf("%-6s %-16s %4ld rows %9.1f us %5.0f%% %7.1f TFLOP/s\n", model.name.c_str(), product.c_str(),
              static_cast<long>(rows), seconds * 1e6, 100 * bytes / bandwidth / seconds,
              entry["teraflops"].get<double>());
  std::fflush(stdout);
  return entry;
}

void measure_model(const ModelShape& model, at::Device gpu, const ProductPlan& plan, double bandwidth,
                   json& entries) {
  const Activations* now = nullptr;
  const std::vector<Product> products = products_of(model, gpu, now);
  for (const int64_t rows : plan.rows) {
    const Activations activations(model, rows, gpu);
    now = &activations;
    for (const Product& product : products) {
      const double seconds = seconds_of(gpu, plan.rounds, times_for(product.bytes()),
                                        [&](int64_t turn) { product.run_turn(turn); });
      entries.push_back(
          entry_of(model, product.name, rows, seconds, product.bytes(), product.operations(), bandwidth));
    }
    double bytes = 0, operations = 0;
    constexpr int of_a_layer = 4;
    for (int i = 0; i < of_a_layer; ++i) bytes += products[i].bytes(), operations += products[i].operations();
    const double layer = seconds_of(gpu, plan.rounds, times_for(bytes), [&](int64_t turn) {
      for (int i = 0; i < of_a_layer; ++i) products[i].run_turn(turn);
    });
    entries.push_back(entry_of(model, "layer", rows, layer, bytes, operations, bandwidth));
  }
}

}  // namespace

json measure_gpu_products(at::Device gpu, const ProductPlan& plan) {
  const at::NoGradGuard no_grad;
  const double bandwidth = infer::measure_copy_bandwidth(int64_t{1} << 30, gpu);
  std::printf("%s, %.0f GB/s copied\n", kernels::gpu_name(gpu).c_str(), bandwidth / 1e9);
  json entries = json::array();
  if (plan.small) {
    measure_model(small_model, gpu, plan, bandwidth, entries);
  } else {
    for (const ModelShape& model : models) measure_model(model, gpu, plan, bandwidth, entries);
  }
  return {{"gpu", kernels::gpu_name(gpu)}, {"copy_bandwidth", bandwidth}, {"products", entries}};
}

}  // namespace clover::bench
