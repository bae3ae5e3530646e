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
#include "model/graphs/draft_graphs.h"
#include "model/graphs/pass_graphs.h"

namespace clover::infer {
namespace {

using nlohmann::json;

constexpr int64_t page_size = 64;
constexpr int64_t rows_a_chunk = 256;
constexpr int64_t accepted_rows = 2;  // that a drafter is primed with: about what heads get accepted
constexpr int steps_of_a_round = 8;

// Any ids serve: the work does not depend on them.
int64_t some_id(int64_t position, int64_t vocab) {
  return (position * 7919 + 13) % vocab;
}

/// A batch whose sequences have so many tokens cached, of random keys and values.
class CachedBatch {
 public:
  CachedBatch(const model::Target& target, int64_t drafter_layers, int64_t batch_size,
              const StepBenchPlan& plan)
      : target_(target),
        context_(plan.context),
        cache_(room_for(target, drafter_layers, batch_size, plan)),
        recorder_(target.device(), plan.graphs),
        passes_(target, cache_, batch_size, recorder_) {
    for (int64_t layer = 0; layer < cache_.shape().layers; ++layer) {
      cache_.keys(layer).normal_();
      cache_.values(layer).normal_();
    }
    for (int64_t i = 0; i < batch_size; ++i) fill(cache_.open());
  }

  /// A root and binary branches a sequence: paths of the lengths a candidate tree has.
  model::RowBatch trees(int64_t rows) const {
    model::RowBatch batch;
    batch.best_only = true;
    for (int32_t sequence = 0; sequence < size_; ++sequence) {
      const int32_t base = static_cast<int32_t>(batch.size());
      for (int64_t i = 0; i < rows; ++i) {
        const int32_t parent = static_cast<int32_t>((i + 1) / 2 - 1);
        batch.add(some_id(1000 + i, target_.config().vocab), sequence, i == 0 ? -1 : base + parent);
        batch.wanted.push_back(base + i);
      }
    }
    return batch;
  }

  /// A pass, until its tokens are there.  On a GPU those of the pass before: as when text is decoded, it goes
  /// from one to the next by itself.
  void run_target(const model::RowBatch& batch) {
    const auto best = [&] {
      const at::Tensor tokens = passes_.forward(batch, {}).best;
      forget_rows();
      return tokens;
    };
    if (target_.device().is_cpu()) return static_cast<void>(best());
    const auto begin = [&] { return kernels::begin_to_host(best()); };
    if (!last_) last_ = begin();
    kernels::Arriving next = begin();
    last_->wait();
    last_ = std::move(next);
  }

  /// Until it has nothing left to do.
  void drain() {
    last_.reset();
    kernels::wait_for(target_.device());
  }

  /// To draft for the batch with.
  model::DraftGraphs draft_of(model::Drafter& drafter) {
    return {drafter, cache_, target_.config().layers, recorder_};
  }

  /// A draft, which sees as many rows as a step may have accepted.
  void run_drafter(model::DraftGraphs& draft) const {
    const int64_t rows = size_ * accepted_rows;
    const int64_t hidden = target_.config().hidden, layers = std::ssize(draft.drafter().features().layers);
    const at::Tensor features = at::zeros({rows, hidden}, target_.dtype());
    model::SeenRows seen{{{features, features}}, {}, {}};
    if (layers > 0) seen.parts[0].layers = at::zeros({rows, layers * hidden}, target_.dtype());
    for (int64_t row = 0; row < rows; ++row) seen.next_ids.push_back(some_id(row, target_.config().vocab));
    for (int32_t sequence = 0; sequence < size_; ++sequence)
      seen.segments.push_back({sequence, static_cast<int32_t>(context_ - accepted_rows), accepted_rows});
    grow(draft, seen, through_every_head(), limits(draft));
  }

  /// The same behind a pass that a GPU is still busy with, as it begins when text is decoded: its own
  /// seconds.
  double run_drafter_behind_a_pass(model::DraftGraphs& draft) {
    const int64_t seen_each = draft.drafter().kv_layers() == 0 ? 1 : accepted_rows;
    model::RowBatch batch;
    model::JudgedRows judged;
    model::SeenRows seen;
    std::vector<int64_t> said;  // each row's child, so that all are accepted
    for (int32_t sequence = 0; sequence < size_; ++sequence) {
      const int64_t base = batch.size();
      for (int64_t i = 0; i < accepted_rows; ++i) {
        const int64_t parent = i == 0 ? -1 : base + i - 1;
        judged.parents.push_back(parent);
        batch.wanted.push_back(batch.size());
        batch.add(some_id(i, target_.config().vocab), sequence, static_cast<int32_t>(parent));
        said.push_back(some_id(i + 1, target_.config().vocab));
      }
      judged.trees.push_back({base, accepted_rows, sequence * seen_each, seen_each, sequence});
      seen.segments.push_back({sequence, static_cast<int32_t>(context_), static_cast<int32_t>(seen_each)});
    }
    judged.ids = batch.ids;
    judged.seen.resize(size_ * seen_each);
    seen.next_ids.resize(size_ * seen_each);
    judged.features = passes_.forward(batch, draft.drafter().features()).features;
    for (int32_t sequence = 0; sequence < size_; ++sequence)
      cache_.add_slots(sequence, accepted_rows, judged.slots);
    judged.tokens =
        kernels::to_device(at::from_blob(said.data(), {std::ssize(said)}, at::kLong), target_.device());
    begin_growing(draft, judged, seen, through_every_head(), limits(draft));
    const double seconds = draft.finish().seconds;
    forget_rows();
    return seconds;
  }

 private:
  void forget_rows() {
    for (int32_t sequence = 0; sequence < size_; ++sequence)
      cache_.keep(sequence, {}, target_.config().layers);
  }

  static GrowthRule through_every_head() {
    GrowthRule rule;
    rule.policy = Policy::chain;  // whatever they guess
    return rule;
  }
  std::vector<GrowthLimit> limits(const model::DraftGraphs& draft) const {
    const int64_t depth = draft.drafter().max_depth();
    return std::vector<GrowthLimit>(size_, {depth, depth});
  }

  static model::KvCache room_for(const model::Target& target, int64_t drafter_layers, int64_t batch_size,
                                 const StepBenchPlan& plan) {
    const model::KvShape shape = target.kv_shape(drafter_layers);
    const int64_t most = std::max(rows_a_chunk, *std::max_element(plan.rows.begin(), plan.rows.end()));
    const int64_t pages = batch_size * ((plan.context + most) / page_size + 2);
    const int64_t bytes = pages * model::KvCache::bytes_per_page(shape, page_size);
    const int64_t left = free_memory(shape.device) / 10 * 9;  // a pass needs some, too
    if (bytes > left) {
      throw data::InputError("Keys and values of " + std::to_string(batch_size) + " sequences of " +
                             std::to_string(plan.context) + " tokens take " + std::to_string(bytes >> 20) +
                             " MiB, " + std::to_string(left >> 20) +
                             " MiB can be had; lower --batch-sizes or --context");
    }
    return model::KvCache(shape, pages, page_size);
  }

  void fill(int32_t sequence) {
    ++size_;
    for (int64_t done = 0; done < context_;) {
      const int64_t count = std::min(rows_a_chunk, context_ - done);
      model::RowBatch batch;
      for (int64_t i = 0; i < count; ++i) batch.add(0, sequence, static_cast<int32_t>(i) - 1);
      std::vector<int32_t> kept(count);
      std::iota(kept.begin(), kept.end(), 0);
      cache_.place(batch);
      cache_.keep(sequence, kept, 0);
      done += count;
    }
  }

  const model::Target& target_;
  int64_t context_;
  model::KvCache cache_;
  model::Recorder recorder_;
  model::PassGraphs passes_;
  int32_t size_ = 0;
  std::optional<kernels::Arriving> last_;  // tokens of a pass that nobody has waited for
};

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Something to time, and what is written of it.
struct Part {
  json entry;
  std::function<double()> work;  // its seconds
  std::function<void()> end{};   // of a round
  std::vector<double> seconds{}, rounds{};
};

void time_in_turn(std::vector<Part>& parts, int64_t rounds) {
  for (int64_t round = -1; round < rounds; ++round) {  // round -1 warms up
    for (Part& part : parts) {
      std::vector<double> steps;
      for (int step = 0; step < steps_of_a_round; ++step) steps.push_back(part.work());
      part.end();
      stop_if_interrupted();
      if (round < 0) continue;
      part.rounds.push_back(median(steps));
      part.seconds.insert(part.seconds.end(), steps.begin(), steps.end());
    }
  }
}

/// What runs in a round of every part, which has been timed before.
void trace_a_round(std::vector<Part>& parts, at::Device device, const std::string& file) {
  trace(device, file, [&parts] {
    for (Part& part : parts) {
      for (int step = 0; step < steps_of_a_round; ++step) part.work();
      part.end();
    }
  });
}

void check_fits(const model::Target& target, const StepBenchPlan& plan) {
  const int64_t most = *std::max_element(plan.rows.begin(), plan.rows.end());
  if (plan.context + most > target.config().context) {
    throw data::InputError("--context " + std::to_string(plan.context) + " and --rows " +
                           std::to_string(most) + ": expected together at most the model's context of " +
                           std::to_string(target.config().context) + " tokens");
  }
}

}  // namespace

json run_step_bench(const model::Target& target, const std::vector<NamedDrafter>& drafters,
                    const StepBenchPlan& plan) {
  check_fits(target, plan);
  const kernels::OneTorchThread as_in_a_step;
  if (!drafters.empty() && plan.context < accepted_rows)
    throw data::InputError("--context " + std::to_string(plan.context) + ": expected at least " +
                           std::to_string(accepted_rows) + " tokens to draft behind");
  int64_t drafter_layers = 0;
  for (const NamedDrafter& named : drafters)
    drafter_layers = std::max(drafter_layers, named.drafter->kv_layers());
  const int64_t token_bytes = model::KvCache::bytes_per_page(target.kv_shape(0), 1);
  json entries = json::array();
  for (const int64_t batch_size : plan.batch_sizes) {
    CachedBatch batch(target, drafter_layers, batch_size, plan);
    std::vector<Part> parts;
    for (const int64_t rows : plan.rows)
      parts.push_back(
          {{{"batch_size", batch_size},
            {"rows", rows},
            {"context", plan.context},
            {"bytes_read", target.weight_bytes() + batch_size * plan.context * token_bytes}},
           [&batch, trees = batch.trees(rows)] { return seconds_of([&] { batch.run_target(trees); }); },
           [&batch] { batch.drain(); }});
    for (const NamedDrafter& named : drafters)
      parts.push_back({{{"batch_size", batch_size},
                        {"heads", named.folder},
                        {"kind", named.drafter->kind()},
                        {"draft_vocab", named.drafter->head(0).size()},
                        {"context", plan.context}},
                       [&batch, on_cpu = target.device().is_cpu(),
                        draft = std::make_shared<model::DraftGraphs>(batch.draft_of(*named.drafter))] {
                         return on_cpu ? seconds_of([&] { batch.run_drafter(*draft); })
                                       : batch.run_drafter_behind_a_pass(*draft);
                       },
                       [&batch] { batch.drain(); }});
    time_in_turn(parts, plan.rounds);
    if (!plan.trace.empty() && entries.empty()) trace_a_round(parts, target.device(), plan.trace);
    for (Part& part : parts) {
      part.entry["seconds"] = median(part.seconds);
      part.entry["rounds"] = part.rounds;
      entries.push_back(part.entry);
    }
  }
  return entries;
}

std::string step_bench_table(const json& configurations, double read_bandwidth) {
  std::string table =
      "batch  rows each  context   ms/step  x first  of the bound (reading weights, keys and values)\n";
  double first = 0;
  int64_t batch_size = 0;
  for (const json& entry : configurations) {
    const double seconds = entry["seconds"].get<double>();
    if (std::exchange(batch_size, entry["batch_size"].get<int64_t>()) != entry["batch_size"]) first = seconds;
    char line[160];
    const auto number = [&entry](const char* key) {
      return static_cast<long long>(entry[key].get<int64_t>());
    };
    if (entry.contains("rows")) {
      std::snprintf(line, sizeof line, "%5lld  %9lld  %7lld  %8.2f  %7.2f  %11.0f%%\n", number("batch_size"),
                    number("rows"), number("context"), 1e3 * seconds, seconds / first,
                    100 * entry["bytes_read"].get<double>() / read_bandwidth / seconds);
    } else {
      std::snprintf(line, sizeof line, "%5lld  %9s  %7lld  %8.2f  %7.2f  drafting, %s, vocabulary %lld\n",
                    number("batch_size"), "-", number("context"), 1e3 * seconds, seconds / first,
                    entry["kind"].get<std::string>().c_str(), number("draft_vocab"));
    }
    table += line;
  }
  return table;
}

}  // namespace clover::infer
