#pragma once

#include <filesystem>

namespace clover::infer {

/// Checks the file of --stats before a job starts or continues.  The job will write its records there, so
/// InputError if the file holds anything but records of the job whose answers go to `output`.
void check_stats_file(const std::filesystem::path& file, const std::filesystem::path& output);

}  // namespace clover::infer
