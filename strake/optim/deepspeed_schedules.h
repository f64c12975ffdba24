#pragma once

#include "strake/optim/learning_rate.h"

// DeepSpeed's schedules, for LearningRateSchedule.
namespace strake::optim {

ScheduleCourse make_warmup_lr(const ScheduleOptions& options);
ScheduleCourse make_warmup_decay_lr(const ScheduleOptions& options);
ScheduleCourse make_warmup_cosine_lr(const ScheduleOptions& options);
ScheduleCourse make_one_cycle(const ScheduleOptions& options);
ScheduleCourse make_lr_range_test(const ScheduleOptions& options);

}  // namespace strake::optim
