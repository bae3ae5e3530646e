#include "infer/bench/step_bench.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "data/files/error.h"
#include "infer/bench/trace.h"
#include "infer/program/interrupt.h"
#include "infer/program/machine.h"
#include "infer/tree/grow.h"
#include "kernels/cpu/threads.h"
#include "kernels/gpu/gpu.h"
#include "model/cache/kv_cache.h"
#include "model/graphs/draft_runner.h"
#include "model/graphs/pass_graphs.h"

namespace clover::infer {
namespace {

using nlohmann::json;

constexpr int64_t page_size = 64;        // tokens
constexpr int64_t rows_per_chunk = 256;  // added to the KV cache at once (CachedBatch::fill)
constexpr int64_t accepted_rows = 2;     // rows per sequence that a drafter reads before it drafts
constexpr int steps_per_round = 8;

/// Some token id.  The time of a step does not depend on it.
int64_t arbitrary_id(int64_t position, int64_t vocab) {
  return (position * 7919 + 13) % vocab;
}

/// A batch of sequences that each have StepBenchPlan::context tokens in the KV cache, with random keys and
/// values.
class CachedBatch {
 public:
  CachedBatch(const model::Target& target, int64_t drafter_layers, int64_t batch_size,
              const StepBenchPlan& plan)
      : target_(target),
        context_(plan.context),
        cache_(make_cache(target, drafter_layers, batch_size, plan)),
        graph_runner_(target.device(), plan.graphs),
        pass_graphs_(target, cache_, batch_size, graph_runner_) {
    for (int64_t layer = 0; layer < cache_.shape().layers; ++layer) {
      cache_.keys(layer).normal_();
      cache_.values(layer).normal_();
    }
    for (int64_t i = 0; i < batch_size; ++i) fill(cache_.open());
  }

  /// A pass over one binary tree of `rows` rows per sequence.  Its paths are about as long as those of
  /// candidate trees.
  model::RowBatch trees(int64_t rows) const {
    model::RowBatch batch;
    batch.arg_max_only = true;
    for (int32_t sequence = 0; sequence < batch_size_; ++sequence) {
      const int32_t base = static_cast<int32_t>(batch.size());
      for (int64_t i = 0; i < rows; ++i) {
        const int32_t parent = static_cast<int32_t>((i + 1) / 2 - 1);
        batch.add(arbitrary_id(1000 + i, target_.config().vocab), sequence, i == 0 ? -1 : base + parent);
        batch.wanted_rows.push_back(base + i);
      }
    }
    return batch;
  }

  /// Runs a pass.  On the CPU it waits for its tokens.  On a GPU it queues the pass and waits for the tokens
  /// of the pass before, so that the GPU goes from one pass to the next without a pause, as in decoding.
  void run_target(const model::RowBatch& batch) {
    const auto run_pass = [&] {
      const at::Tensor tokens = pass_graphs_.forward(batch, {}).arg_max;
      drop_rows();
      return tokens;
    };
    if (target_.device().is_cpu()) return static_cast<void>(run_pass());
    const auto launch = [&] { return kernels::copy_to_host_async(run_pass()); };
    if (!last_tokens_) last_tokens_ = launch();
    kernels::PendingCopy next = launch();
    last_tokens_->wait();
    last_tokens_ = std::move(next);
  }

  /// Waits until the device is idle.
  void drain() {
    last_tokens_.reset();
    kernels::synchronize(target_.device());
  }

  model::DraftRunner draft_runner_of(model::Drafter& drafter) {
    return {drafter, cache_, target_.config().layers, graph_runner_};
  }

  /// The drafter reads accepted_rows rows per sequence and drafts with every head.
  void run_drafter(model::DraftRunner& draft) const {
    const int64_t rows = batch_size_ * accepted_rows;
    const int64_t hidden = target_.config().hidden, layers = std::ssize(draft.drafter().taps().layers);
    const at::Tensor features = at::zeros({rows, hidden}, target_.dtype());
    model::DraftInput input{{{features, features}}, {}, {}};
    if (layers > 0) input.parts[0].layers = at::zeros({rows, layers * hidden}, target_.dtype());
    for (int64_t row = 0; row < rows; ++row)
      input.next_ids.push_back(arbitrary_id(row, target_.config().vocab));
    for (int32_t sequence = 0; sequence < batch_size_; ++sequence)
      input.segments.push_back({sequence, static_cast<int32_t>(context_ - accepted_rows), accepted_rows});
    grow(draft, input, every_head_rule(), limits(draft));
  }

  /// The same, queued after a pass of the target that a GPU is still running, as in decoding.  Returns the
  /// seconds of the draft alone, measured on the GPU.
  double run_drafter_after_pass(model::DraftRunner& draft) {
    const int64_t drafter_rows_per_sequence = draft.drafter().kv_layers() == 0 ? 1 : accepted_rows;
    model::RowBatch batch;
    model::UnverifiedTrees unverified_trees;
    model::DraftInput input;
    std::vector<int64_t> target_tokens;  // after each row the token of its child, so that all are accepted
    for (int32_t sequence = 0; sequence < batch_size_; ++sequence) {
      const int64_t base = batch.size();
      for (int64_t i = 0; i < accepted_rows; ++i) {
        const int64_t parent = i == 0 ? -1 : base + i - 1;
        unverified_trees.parents.push_back(parent);
        batch.wanted_rows.push_back(batch.size());
        batch.add(arbitrary_id(i, target_.config().vocab), sequence, static_cast<int32_t>(parent));
        target_tokens.push_back(arbitrary_id(i + 1, target_.config().vocab));
      }
      unverified_trees.tree_rows.push_back(
          {base, accepted_rows, sequence * drafter_rows_per_sequence, drafter_rows_per_sequence, sequence});
      input.segments.push_back(
          {sequence, static_cast<int32_t>(context_), static_cast<int32_t>(drafter_rows_per_sequence)});
    }
    unverified_trees.ids = batch.ids;
    unverified_trees.drafter_rows.resize(batch_size_ * drafter_rows_per_sequence);
    input.next_ids.resize(batch_size_ * drafter_rows_per_sequence);
    unverified_trees.features = pass_graphs_.forward(batch, draft.drafter().taps()).features;
    for (int32_t sequence = 0; sequence < batch_size_; ++sequence)
      cache_.append_slots(sequence, accepted_rows, unverified_trees.slots);
    unverified_trees.tokens = kernels::to_device(
        at::from_blob(target_tokens.data(), {std::ssize(target_tokens)}, at::kLong), target_.device());
    begin_growing(draft, unverified_trees, input, every_head_rule(), limits(draft));
    const double seconds = draft.wait_for_trees().seconds;
    drop_rows();
    return seconds;
  }

 private:
  /// Drops the rows of the last pass from the KV cache.
  void drop_rows() {
    for (int32_t sequence = 0; sequence < batch_size_; ++sequence)
      cache_.keep_rows(sequence, {}, target_.config().layers);
  }

  /// A growth rule under which every head drafts, whatever the others have drafted.
  static GrowthRule every_head_rule() {
    GrowthRule rule;
    rule.policy = parse_policy("chain");
    return rule;
  }
  std::vector<GrowthLimit> limits(const model::DraftRunner& draft) const {
    const int64_t depth = draft.drafter().trained_depth();
    return std::vector<GrowthLimit>(batch_size_, {depth, depth});
  }

  /// A KV cache with room for the batch.  InputError when the device has too little memory.
  static model::KvCache make_cache(const model::Target& target, int64_t drafter_layers, int64_t batch_size,
                                   const StepBenchPlan& plan) {
    const model::KvShape shape = target.kv_shape(drafter_layers);
    const int64_t max_rows = std::max(rows_per_chunk, *std::max_element(plan.rows.begin(), plan.rows.end()));
    const int64_t pages = batch_size * ((plan.context + max_rows) / page_size + 2);
    const int64_t bytes = pages * model::KvCache::bytes_per_page(shape, page_size);
    const int64_t available = free_memory(shape.device) / 10 * 9;  // a tenth is left to passes
    if (bytes > available) {
      throw data::InputError("Keys and values of " + std::to_string(batch_size) + " sequences of " +
                             std::to_string(plan.context) + " tokens take " + std::to_string(bytes >> 20) +
                             " MiB, " + std::to_string(available >> 20) +
                             " MiB can be had; lower --batch-sizes or --context");
    }
    return model::KvCache(shape, pages, page_size);
  }

  /// Gives a new sequence its context_ cached tokens.  Their keys and values are random already.
  void fill(int32_t sequence) {
    ++batch_size_;
    for (int64_t done = 0; done < context_;) {
      const int64_t count = std::min(rows_per_chunk, context_ - done);
      model::RowBatch batch;
      for (int64_t i = 0; i < count; ++i) batch.add(0, sequence, static_cast<int32_t>(i) - 1);
      std::vector<int32_t> kept(count);
      std::iota(kept.begin(), kept.end(), 0);
      cache_.place(batch);
      cache_.keep_rows(sequence, kept, 0);
      done += count;
    }
  }

  const model::Target& target_;
  int64_t context_;
  model::KvCache cache_;
  model::GraphRunner graph_runner_;
  model::PassGraphs pass_graphs_;
  int32_t batch_size_ = 0;
  std::optional<kernels::PendingCopy> last_tokens_;  // of the last pass, being copied to the CPU
};

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// One kind of pass or draft to time.
struct TimedWork {
  json entry;                         // of "configurations"
  std::function<double()> run;        // runs it once, returns the seconds
  std::function<void()> end_round{};  // called at the end of a round
  std::vector<double> seconds{};      // of every run
  std::vector<double> rounds{};       // the median of each round
};

/// Times all kinds of work in turn, steps_per_round times each in every round.
void time_in_turn(std::vector<TimedWork>& all_work, int64_t rounds) {
  for (int64_t round = -1; round < rounds; ++round) {  // round -1 is a warm-up
    for (TimedWork& work : all_work) {
      std::vector<double> step_seconds;
      for (int step = 0; step < steps_per_round; ++step) step_seconds.push_back(work.run());
      work.end_round();
      stop_if_interrupted();
      if (round < 0) continue;
      work.rounds.push_back(median(step_seconds));
      work.seconds.insert(work.seconds.end(), step_seconds.begin(), step_seconds.end());
    }
  }
}

/// Profiles one round of all kinds of work.
void trace_round(std::vector<TimedWork>& all_work, at::Device device, const std::string& file) {
  trace(device, file, [&all_work] {
    for (TimedWork& work : all_work) {
      for (int step = 0; step < steps_per_round; ++step) work.run();
      work.end_round();
    }
  });
}

void check_fits(const model::Target& target, const StepBenchPlan& plan) {
  const int64_t max_rows = *std::max_element(plan.rows.begin(), plan.rows.end());
  if (plan.context + max_rows > target.config().context) {
    throw data::InputError("--context " + std::to_string(plan.context) + " and --rows " +
                           std::to_string(max_rows) + ": expected together at most the model's context of " +
                           std::to_string(target.config().context) + " tokens");
  }
}

/// Passes of the target.
TimedWork pass_work(CachedBatch& batch, const model::Target& target, int64_t batch_size, int64_t rows,
                    const StepBenchPlan& plan) {
  const int64_t token_bytes = model::KvCache::bytes_per_page(target.kv_shape(0), 1);
  return {{{"batch_size", batch_size},
           {"rows", rows},
           {"context", plan.context},
           {"bytes_read", target.weight_bytes() + batch_size * plan.context * token_bytes}},
          [&batch, trees = batch.trees(rows)] { return seconds_of([&] { batch.run_target(trees); }); },
          [&batch] { batch.drain(); }};
}

/// Drafts of one drafter.
TimedWork draft_work(CachedBatch& batch, const model::Target& target, const NamedDrafter& named_drafter,
                     int64_t batch_size, const StepBenchPlan& plan) {
  return {{{"batch_size", batch_size},
           {"heads", named_drafter.name},
           {"kind", named_drafter.drafter->kind()},
           {"draft_vocab", named_drafter.drafter->head(0).outputs},
           {"context", plan.context}},
          [&batch, on_cpu = target.device().is_cpu(),
           draft = std::make_shared<model::DraftRunner>(batch.draft_runner_of(*named_drafter.drafter))] {
            return on_cpu ? seconds_of([&] { batch.run_drafter(*draft); })
                          : batch.run_drafter_after_pass(*draft);
          },
          [&batch] { batch.drain(); }};
}

}  // namespace

json run_step_bench(const model::Target& target, const std::vector<NamedDrafter>& drafters,
                    const StepBenchPlan& plan) {
  check_fits(target, plan);
  const kernels::OneTorchThread one_thread;  // as in Engine::step
  if (!drafters.empty() && plan.context < accepted_rows)
    throw data::InputError("--context " + std::to_string(plan.context) + ": expected at least " +
                           std::to_string(accepted_rows) + " tokens to draft behind");
  int64_t drafter_layers = 0;
  for (const NamedDrafter& named_drafter : drafters)
    drafter_layers = std::max(drafter_layers, named_drafter.drafter->kv_layers());
  json entries = json::array();
  for (const int64_t batch_size : plan.batch_sizes) {
    CachedBatch batch(target, drafter_layers, batch_size, plan);
    std::vector<TimedWork> all_work;
    for (const int64_t rows : plan.rows) all_work.push_back(pass_work(batch, target, batch_size, rows, plan));
    for (const NamedDrafter& named_drafter : drafters)
      all_work.push_back(draft_work(batch, target, named_drafter, batch_size, plan));
    time_in_turn(all_work, plan.rounds);
    if (!plan.trace.empty() && entries.empty()) trace_round(all_work, target.device(), plan.trace);
    for (TimedWork& work : all_work) {
      work.entry["seconds"] = median(work.seconds);
      work.entry["rounds"] = work.rounds;
      entries.push_back(work.entry);
    }
  }
  return entries;
}

std::string step_bench_table(const json& configurations, double read_bandwidth) {
  std::string table =
      "batch  rows each  context   ms/step  x first  of the bound (reading weights, keys and values)\n";
  double first_seconds = 0;
  int64_t batch_size = 0;
  for (const json& entry : configurations) {
    const double seconds = entry["seconds"].get<double>();
    if (std::exchange(batch_size, entry["batch_size"].get<int64_t>()) != entry["batch_size"])
      first_seconds = seconds;
    char line[160];
    const auto number = [&entry](const char* key) {
      return static_cast<long long>(entry[key].get<int64_t>());
    };
    if (entry.contains("rows")) {
      std::snprintf(line, sizeof line, "%5lld  %9lld  %7lld  %8.2f  %7.2f  %11.0f%%\n", number("batch_size"),
                    number("rows"), number("context"), 1e3 * seconds, seconds / first_seconds,
                    100 * entry["bytes_read"].get<double>() / read_bandwidth / seconds);
    } else {
      std::snprintf(line, sizeof line, "%5lld  %9s  %7lld  %8.2f  %7.2f  drafting, %s, vocabulary %lld\n",
                    number("batch_size"), "-", number("context"), 1e3 * seconds, seconds / first_seconds,
                    entry["kind"].get<std::string>().c_str(), number("draft_vocab"));
    }
    table += line;
  }
  return table;
}

}  // namespace clover::infer
