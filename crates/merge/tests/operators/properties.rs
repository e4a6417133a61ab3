//! Laws of the duplicate check, over random rows in any order and any memory.

use deltalake_merge::columns::MatchClass;
use proptest::prelude::*;

use crate::matches::{Expected, Row, assert_passed, ids, oracle};
use crate::session::{Pool, Session, partition, settings, totals, with_time_limit};

fn class() -> impl Strategy<Value = MatchClass> {
    prop_oneof![
        1 => Just(MatchClass::Ignore),
        12 => Just(MatchClass::Noop),
        1 => Just(MatchClass::UnconditionalDelete),
        1 => Just(MatchClass::Action),
    ]
}

/// Ordinals that reach array containers, dense bitmaps, and past 32 bits.
fn ordinal() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![
        30 => (0_u64..400).prop_map(Some),
        30 => (0_u64..200_000).prop_map(Some),
        2 => (0_u64..50).prop_map(|ordinal| Some((1 << 33) + ordinal)),
        1 => Just(None),
    ]
}

fn rows() -> impl Strategy<Value = Vec<Row>> {
    let file = prop_oneof![30 => (0_u16..6).prop_map(Some), 1 => Just(None)];
    let random = prop::collection::vec((file, ordinal(), class()), 0..600);
    // A scan meets the rows of a file in order, and mostly once each.
    let scanned =
        (1_u16..5, 1_u64..1_000, class(), class()).prop_map(|(files, rows, few, many)| {
            let ordinals =
                (0..rows).flat_map(move |ordinal| (0..files).map(move |file| (file, ordinal)));
            let rows = ordinals.map(move |(file, ordinal)| {
                let class = if ordinal % 97 == 5 { few } else { many };
                (Some(file), Some(ordinal), class)
            });
            rows.collect::<Vec<_>>()
        });
    (random, scanned, 0_u8..3).prop_map(|(random, mut scanned, mix)| {
        let rows = match mix {
            0 => random,
            1 => scanned,
            _ => {
                scanned.extend(random);
                scanned
            }
        };
        let rows = rows.into_iter().enumerate();
        rows.map(|(id, (file, ordinal, class))| Row {
            id: id as i64,
            file,
            ordinal,
            class,
        })
        .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200,
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(4359),
        ..ProptestConfig::default()
    })]

    #[test]
    fn agrees_with_the_oracle(
        rows in rows(),
        settings in settings(),
        partitions in 1_u16..4,
        batch_rows in prop_oneof![1_usize..50, Just(1_000)],
    ) {
        with_time_limit(async {
            let session = Session::new(&settings);
            let plan = session.validation(&partition(&rows, partitions, batch_rows));
            match (session.run(&plan).await, oracle(&rows)) {
                (Ok(batches), Expected::OneOfEach(expected)) => {
                    assert_passed(&ids(&batches, &rows), &expected);
                    let totals = totals(&plan);
                    let matched = |row: &&Row| {
                        row.class != MatchClass::Ignore && row.file.is_some() && row.ordinal.is_some()
                    };
                    assert_eq!(totals.rows_checked, rows.iter().filter(matched).count());
                    // Not one deferred row fits in these.
                    let must_spill = settings.limit == Some(0)
                        || matches!(settings.pool, Pool::Greedy(..300) | Pool::Fair(..300));
                    if must_spill && totals.rows_deferred > 0 {
                        assert!(totals.spill_files > 0 && totals.spilled_bytes > 0);
                    }
                    if matches!(settings.pool, Pool::Unbounded) && settings.limit.is_none() {
                        assert_eq!(totals.spill_files, 0);
                    }
                }
                (Err(error), Expected::Duplicate) => {
                    let error = error.to_string();
                    assert!(error.contains("multiple source rows"), "{error}");
                }
                (result, expected) => panic!("{result:?} where {expected:?} is right"),
            }
            drop(plan);
            session.assert_released();
        });
    }
}
