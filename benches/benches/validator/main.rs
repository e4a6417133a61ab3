//! How many rows per second does the duplicate check take in?
//!
//! Both operators, the one of this project and the one of the pinned deltalake-core, read the same
//! batches from memory and are drained. Every group has the same number of rows; what differs is
//! how many of the matches act on their target row and over how many files they are spread. Ours is
//! the bitmap strategy, the slower one: the streaming one has no meaning without the join below it.
//!
//! The upstream operator is private to its crate. Its source, which `cargo xtask fork` has put
//! into `fork/`, is compiled into this bench as it is; `upstream` gives it the items that it
//! expects around itself.

mod delta_datafusion;
mod input;
mod upstream;

/// Where the upstream source looks for its siblings.
mod operations {
    pub(crate) use crate::upstream as merge;
}

pub(crate) use deltalake_core::DeltaTableError;

use std::sync::Arc;

use criterion::{
    BenchmarkId, Criterion, SamplingMode, Throughput, criterion_group, criterion_main,
};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionContext;
use deltalake_merge::validation::MergeValidationExec;
use futures::StreamExt;
use tokio::runtime::Runtime;

use crate::delta_datafusion::PATH_COLUMN;
use crate::input::{Input, ROWS};
use crate::upstream::TARGET_ROW_ORDINAL_IN_FILE_COLUMN;

/// Puts an implementation of the check on top of an input.
type Operator = fn(
    Arc<dyn ExecutionPlan>,
    Arc<dyn PhysicalExpr>,
    Arc<String>,
    Arc<String>,
) -> Arc<dyn ExecutionPlan>;

const IMPLEMENTATIONS: [(&str, Operator); 2] = [
    ("ours", |input, file, file_column, ordinal_column| {
        Arc::new(MergeValidationExec::new(
            input,
            file,
            file_column,
            ordinal_column,
        ))
    }),
    ("upstream", upstream::merge_validation_exec),
];

fn validator(criterion: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime");
    for (name, input) in [
        ("noop_heavy", Input::noop_heavy()),
        ("action_only", Input::action_only()),
        ("many_files", Input::many_files()),
    ] {
        let batches = input.batches();
        let schema = batches[0].schema();
        let source = MemorySourceConfig::try_new_exec(&[batches], schema, None).expect("a source");

        let mut group = criterion.benchmark_group(name);
        // Upstream takes seconds for what is measured here.
        group.sample_size(10).sampling_mode(SamplingMode::Flat);
        group.throughput(Throughput::Elements(ROWS));
        for (implementation, operator) in IMPLEMENTATIONS {
            group.bench_function(BenchmarkId::from_parameter(implementation), |bencher| {
                bencher.iter(|| {
                    let rows = runtime.block_on(drain(operator, source.clone()));
                    // No two matches are of one target row, so none may be lost.
                    assert_eq!(rows, ROWS, "{implementation} lost or doubled rows");
                });
            });
        }
        group.finish();
    }
}

/// Runs the operator on the only partition of `input` and counts what leaves it.
async fn drain(operator: Operator, input: Arc<dyn ExecutionPlan>) -> u64 {
    let schema = input.schema();
    let file = Column::new_with_schema(PATH_COLUMN, &schema).expect("the path column");
    let plan = operator(
        input,
        Arc::new(file),
        Arc::new(PATH_COLUMN.to_string()),
        Arc::new(TARGET_ROW_ORDINAL_IN_FILE_COLUMN.to_string()),
    );
    let context = SessionContext::new().task_ctx();
    let mut stream = plan.execute(0, context).expect("a stream");
    let mut rows = 0;
    while let Some(batch) = stream.next().await {
        rows += batch.expect("no duplicate match").num_rows() as u64;
    }
    rows
}

criterion_group!(benches, validator);
criterion_main!(benches);
