#include <array>

#include "strake/integrations/ds_config_keys.h"

namespace strake::integrations {
namespace {

using enum ValueType;

constexpr std::string_view kMetrics = "metrics.jsonl has the metrics";
constexpr std::string_view kNoService =
    "nothing is sent to services; tensorboard, csv_monitor and metrics.jsonl have the metrics";
constexpr std::string_view kOwnWriter = "checkpoints have one writer";
constexpr std::string_view kNoTuner = "training uses the values given; it does not tune them yet";
constexpr std::string_view kNoElasticity = "batch sizes do not follow the number of ranks";
constexpr std::string_view kNoCurriculum = "curricula are not there; data comes in the order of --seed";
constexpr std::string_view kNoLayerDrop = "dropping layers is not there";
constexpr std::string_view kNoEigenvalue = "eigenvalues serve quantization while training, which is not there";
constexpr std::string_view kNebula = "checkpoints are written to --output_dir, when --save_strategy says";

// Keys of sections that are decided by their "enabled".
constexpr KeyRule detail(std::string_view path, ValueType type, std::string_view fallback, std::string_view reason) {
  return accepted(path, type, fallback, reason);
}

constexpr std::array kLifecycleKeys{
    accepted("steps_per_print", kNumber, "null", "--logging_steps decides").on_auto(AutoMeaning::kDefault),
    honoured("wall_clock_breakdown", kBool, "false"),
    accepted("memory_breakdown", kBool, "false", "the closing table has the memory"),
    accepted("disable_python_gc", kBool, "false", "there is no Python to collect garbage"),
    accepted("dump_state", kBool, "false", "the settings are always logged"),
    accepted("log_level", kText, "null", "errors, warnings and the run's progress are always logged"),
    accepted("vocabulary_size", kInteger, "null", "the model knows it").range(1),
    section("timers"),
    section("timers.throughput", AutoMeaning::kDefault),
    accepted("timers.throughput.enabled", kBool, "true", "throughput is always measured"),
    accepted("timers.throughput.synchronized", kBool, "true", "throughput is always measured"),

    section("tensorboard", AutoMeaning::kDefault),
    honoured("tensorboard.enabled", kBool, "false"),
    honoured("tensorboard.output_path", kText, "\"\""),
    honoured("tensorboard.job_name", kText, "\"DeepSpeedJobName\""),
    section("wandb", AutoMeaning::kDefault),
    refused("wandb.enabled", kBool, "false", kNoService),
    detail("wandb.group", kText, "null", kMetrics),
    detail("wandb.team", kText, "null", kMetrics),
    detail("wandb.project", kText, "\"deepspeed\"", kMetrics),
    section("csv_monitor", AutoMeaning::kDefault),
    honoured("csv_monitor.enabled", kBool, "false"),
    honoured("csv_monitor.output_path", kText, "\"\""),
    honoured("csv_monitor.job_name", kText, "\"DeepSpeedJobName\""),
    section("comet", AutoMeaning::kDefault),
    refused("comet.enabled", kBool, "false", kNoService),
    detail("comet.samples_log_interval", kInteger, "100", kMetrics),
    detail("comet.project", kText, "null", kMetrics),
    detail("comet.workspace", kText, "null", kMetrics),
    detail("comet.api_key", kText, "null", kMetrics),
    detail("comet.experiment_name", kText, "null", kMetrics),
    detail("comet.experiment_key", kText, "null", kMetrics),
    detail("comet.online", kBool, "null", kMetrics),
    detail("comet.mode", kText, "null", kMetrics),
    section("comms_logger", AutoMeaning::kDefault),
    honoured("comms_logger.enabled", kBool, "false"),
    honoured("comms_logger.verbose", kBool, "false"),
    honoured("comms_logger.prof_all", kBool, "true"),
    detail("comms_logger.debug", kBool, "false", "there are no functions of Python to name"),
    honoured("comms_logger.prof_ops", kTextList, "[]"),
    section("flops_profiler", AutoMeaning::kDefault),
    honoured("flops_profiler.enabled", kBool, "false"),
    detail("flops_profiler.recompute_fwd_factor", kNumber, "0.0", "what is computed again is counted"),
    honoured("flops_profiler.profile_step", kInteger, "1").range(1),
    detail("flops_profiler.module_depth", kInteger, "-1", "blocks are the modules"),
    honoured("flops_profiler.top_modules", kInteger, "1").range(1),
    honoured("flops_profiler.detailed", kBool, "true"),
    honoured("flops_profiler.output_file", kText, "null"),

    section("checkpoint"),
    accepted("checkpoint.tag_validation", kText, "\"Warn\"", "the ranks of a checkpoint are always checked")
        .one_of("Warn|Ignore|Fail"),
    accepted("checkpoint.load_universal", kBool, "false", "every checkpoint can be loaded at any number of ranks"),
    noticed("checkpoint.use_node_local_storage", kBool, "false",
            "checkpoints are written to --output_dir, which all ranks must see"),
    section("checkpoint.parallel_write"),
    accepted("checkpoint.parallel_write.pipeline_stage", kBool, "false", "there are no pipeline stages"),
    accepted("checkpoint.checkpoint_serialization", kBool, "true", kOwnWriter),
    section("checkpoint.writer"),
    refused("checkpoint.writer.type", kText, "\"fast\"", "the mock writer would write nothing")
        .one_of("mock|python|fast")
        .allowing("\"python\""),
    accepted("checkpoint.writer.io_buffer_size", kInteger, "67108864", kOwnWriter).range(1),
    accepted("checkpoint.writer.io_buffer_double", kBool, "true", kOwnWriter),
    accepted("checkpoint.writer.show_statistics", kBool, "false", kOwnWriter),
    accepted("checkpoint.writer.data_parallel", kText, "null", kOwnWriter).one_of("replica|socket|machine"),
    honoured("checkpoint.writer.decoupled", kBool, "false"),
    accepted("checkpoint.writer.io_multiplier", kInteger, "1", kOwnWriter).range(1),

    section("nebula"),
    honoured("nebula.enabled", kBool, "false"),
    noticed("nebula.nebula_load_path", kText, "null", "give the folder to --resume_from_checkpoint"),
    detail("nebula.persistent_storage_path", kText, "null", kNebula),
    detail("nebula.persistent_time_interval", kInteger, "100", kNebula).range(0),
    detail("nebula.num_of_version_in_retention", kInteger, "2",
           "the newest is in memory until it is on disk; --save_total_limit says how many stay in --output_dir")
        .range(1),
    detail("nebula.enable_nebula_load", kBool, "true", "every checkpoint can be loaded"),
    noticed("datastates_ckpt", kObject, "null",
            "checkpoint.writer.decoupled is what has checkpoints written while training goes on"),

    section("elasticity"),
    refused("elasticity.enabled", kBool, "false", kNoElasticity),
    detail("elasticity.max_train_batch_size", kInteger, "2000", kNoElasticity),
    detail("elasticity.micro_batch_sizes", kIntegerList, "[2,4,6]", kNoElasticity),
    detail("elasticity.min_gpus", kInteger, "1", kNoElasticity),
    detail("elasticity.max_gpus", kInteger, "10000", kNoElasticity),
    detail("elasticity.min_time", kInteger, "0", kNoElasticity),
    detail("elasticity.prefer_larger_batch", kBool, "true", kNoElasticity),
    detail("elasticity.ignore_non_elastic_batch_info", kBool, "false", kNoElasticity),
    detail("elasticity.version", kNumber, "0.2", kNoElasticity),
    detail("elasticity.num_gpus_per_node", kInteger, "1", kNoElasticity),
    detail("elasticity.model_parallel_size", kInteger, "1", kNoElasticity),

    section("autotuning"),
    noticed("autotuning.enabled", kBool, "false", kNoTuner),
    detail("autotuning.fast", kBool, "true", kNoTuner),
    detail("autotuning.results_dir", kText, "\"autotuning_results\"", kNoTuner),
    detail("autotuning.exps_dir", kText, "\"autotuning_exps\"", kNoTuner),
    detail("autotuning.overwrite", kBool, "true", kNoTuner),
    detail("autotuning.start_profile_step", kInteger, "3", kNoTuner),
    detail("autotuning.end_profile_step", kInteger, "5", kNoTuner),
    detail("autotuning.metric", kText, "\"throughput\"", kNoTuner).one_of("throughput|latency|flops"),
    detail("autotuning.metric_path", kText, "null", kNoTuner),
    detail("autotuning.arg_mappings", kObject, "null", kNoTuner),  // keys may end in blanks
    detail("autotuning.max_train_batch_size", kInteger, "null", kNoTuner),
    detail("autotuning.min_train_batch_size", kInteger, "1", kNoTuner),
    detail("autotuning.max_train_micro_batch_size_per_gpu", kInteger, "1024", kNoTuner),
    detail("autotuning.min_train_micro_batch_size_per_gpu", kInteger, "1", kNoTuner),
    detail("autotuning.num_tuning_micro_batch_sizes", kInteger, "3", kNoTuner),
    detail("autotuning.mp_size", kInteger, "1", kNoTuner),
    detail("autotuning.tuner_type", kText, "\"gridsearch\"", kNoTuner).one_of("gridsearch|random|model_based"),
    detail("autotuning.tuner_early_stopping", kInteger, "5", kNoTuner),
    detail("autotuning.tuner_num_trials", kInteger, "50", kNoTuner),
    section("autotuning.model_info"),
    detail("autotuning.model_info.profile", kBool, "false", kNoTuner),
    detail("autotuning.model_info.num_params", kInteger, "null", kNoTuner),
    detail("autotuning.model_info.hidden_size", kInteger, "null", kNoTuner),
    detail("autotuning.model_info.num_layers", kInteger, "null", kNoTuner),
    detail("autotuning.model_info_path", kText, "null", kNoTuner),

    refused("curriculum_learning", kSwitched, "null", kNoCurriculum),
    section("data_efficiency"),
    refused("data_efficiency.enabled", kBool, "false", kNoCurriculum),
    detail("data_efficiency.seed", kInteger, "1234", kNoCurriculum),
    section("data_efficiency.data_sampling"),
    refused("data_efficiency.data_sampling.enabled", kBool, "false", kNoCurriculum),
    detail("data_efficiency.data_sampling.num_epochs", kInteger, "1000", kNoCurriculum),
    detail("data_efficiency.data_sampling.num_workers", kInteger, "0", kNoCurriculum),
    detail("data_efficiency.data_sampling.pin_memory", kBool, "false", kNoCurriculum),
    refused("data_efficiency.data_sampling.curriculum_learning", kSwitched, "null", kNoCurriculum),
    section("data_efficiency.data_sampling.dynamic_batching"),
    refused("data_efficiency.data_sampling.dynamic_batching.enabled", kBool, "false",
            "batches of a number of tokens are cut by --max_tokens_per_batch"),
    detail("data_efficiency.data_sampling.dynamic_batching.lr_scaling_method", kText, "\"linear\"", kNoCurriculum),
    detail("data_efficiency.data_sampling.dynamic_batching.min_batch_size", kInteger, "1", kNoCurriculum),
    detail("data_efficiency.data_sampling.dynamic_batching.max_batch_size", kInteger, "null", kNoCurriculum),
    detail("data_efficiency.data_sampling.dynamic_batching.sequence_picking_order", kText, "\"dataloader\"",
           kNoCurriculum),
    detail("data_efficiency.data_sampling.dynamic_batching.max_tokens", kInteger, "null", kNoCurriculum),
    detail("data_efficiency.data_sampling.dynamic_batching.metrics_path", kText, "null", kNoCurriculum),
    detail("data_efficiency.data_sampling.dynamic_batching.verbose", kBool, "false", kNoCurriculum),
    section("data_efficiency.data_routing"),
    refused("data_efficiency.data_routing.enabled", kBool, "false", "random layer-wise token dropping is not there"),
    refused("data_efficiency.data_routing.random_ltd", kSwitched, "null",
            "random layer-wise token dropping is not there"),

    section("progressive_layer_drop"),
    refused("progressive_layer_drop.enabled", kBool, "false", kNoLayerDrop),
    detail("progressive_layer_drop.theta", kNumber, "1.0", kNoLayerDrop),
    detail("progressive_layer_drop.gamma", kNumber, "0.001", kNoLayerDrop),
    section("eigenvalue"),
    refused("eigenvalue.enabled", kBool, "false", kNoEigenvalue),
    detail("eigenvalue.verbose", kBool, "false", kNoEigenvalue),
    detail("eigenvalue.max_iter", kInteger, "100", kNoEigenvalue),
    detail("eigenvalue.tol", kNumber, "0.01", kNoEigenvalue),
    detail("eigenvalue.stability", kNumber, "0.000001", kNoEigenvalue),
    detail("eigenvalue.gas_boundary_resolution", kInteger, "1", kNoEigenvalue),
    detail("eigenvalue.layer_name", kText, "\"bert.encoder.layer\"", kNoEigenvalue),
    detail("eigenvalue.layer_num", kInteger, "0", kNoEigenvalue),
};

}  // namespace

std::span<const KeyRule> ds_lifecycle_keys() { return kLifecycleKeys; }

}  // namespace strake::integrations
