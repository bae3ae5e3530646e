#pragma once

#include <filesystem>

namespace clover::infer {

/// Checks the file of --stats before a job starts or continues.  InputError when it holds anything but
/// records of the job whose answers go to `output`, because the job would overwrite it.
void check_stats_file(const std::filesystem::path& file, const std::filesystem::path& output);

}  // namespace clover::infer
