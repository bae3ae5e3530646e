#include "train/run/run_folder.h"

#include <cstdio>
#include <filesystem>
#include <string>

#include "data/files/files.h"
#include "data/files/unfinished_folder.h"
#include "train/run/checkpoint.h"

namespace clover::train {

namespace fs = std::filesystem;

void prepare_run_folder(const FitJob& job) {
  const fs::path& folder = job.folders.output;
  data::remove_temporary_files(folder);
  data::write_file_atomically(folder / "run.toml", job.settings.to_toml());
  const Checkpoints checkpoints(folder);
  checkpoints.remove_leftovers();
  if (job.checkpoint) {
    std::string removed;
    for (const int64_t step : checkpoints.remove_later(job.state.step))
      removed += " " + checkpoints.at_step(step).filename().string();
    if (!removed.empty())
      std::fprintf(stderr, "going on behind step %lld; removed the later checkpoints:%s\n",
                   static_cast<long long>(job.state.step), removed.c_str());
  }
  for (const char* heads : {"best", "last"}) data::remove_unfinished(folder / heads);
}

}  // namespace clover::train
