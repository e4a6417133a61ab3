//! Casts under which different values stay different.

use arrow::datatypes::DataType::{self, *};
use arrow::datatypes::TimeUnit;

/// Whether a cast from `from` to `to` maps different values to different values, NULL aside.
///
/// Conservative: only widenings of which this is plain are listed.
pub(super) fn is_lossless(from: &DataType, to: &DataType) -> bool {
    if let Dictionary(_, value) = from {
        return is_lossless(value, to);
    }
    if let Dictionary(_, value) = to {
        return is_lossless(from, value);
    }
    if from == to || (is_text(from) && is_text(to)) || (is_bytes(from) && is_bytes(to)) {
        return true;
    }
    match (from, to) {
        (Float16, Float32 | Float64) | (Float32, Float64) => true,
        (Date32, Date64) => true,
        (Timestamp(from, from_zone), Timestamp(to, to_zone)) => {
            // A time without a zone becomes ambiguous in a zone that puts its clocks back.
            let zone = from_zone.is_some() == to_zone.is_some() || is_utc(to_zone.as_deref());
            zone && rank(from) <= rank(to)
        }
        (Decimal32(p, s) | Decimal64(p, s) | Decimal128(p, s) | Decimal256(p, s), to) => {
            let integer_digits = i32::from(*p) - i32::from(*s);
            holds_decimal(to, integer_digits, i32::from(*s))
        }
        (from, to) => integer(from).is_some_and(|from| holds_integer(to, from)),
    }
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, Utf8 | LargeUtf8 | Utf8View)
}

fn is_bytes(data_type: &DataType) -> bool {
    matches!(data_type, Binary | LargeBinary | BinaryView)
}

fn is_utc(zone: Option<&str>) -> bool {
    matches!(zone, Some("UTC" | "+00:00"))
}

fn rank(unit: &TimeUnit) -> u8 {
    match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 1,
        TimeUnit::Microsecond => 2,
        TimeUnit::Nanosecond => 3,
    }
}

/// An integer type: whether it has a sign, and its bits for the magnitude.
#[derive(Clone, Copy)]
struct Integer {
    signed: bool,
    bits: u32,
}

impl Integer {
    /// Digits of the largest magnitude.
    fn digits(self) -> i32 {
        // The decimal digits of two to the power of `bits`.
        (f64::from(self.bits) * std::f64::consts::LOG10_2) as i32 + 1
    }
}

fn integer(data_type: &DataType) -> Option<Integer> {
    let (signed, bits) = match data_type {
        Int8 => (true, 7),
        Int16 => (true, 15),
        Int32 => (true, 31),
        Int64 => (true, 63),
        UInt8 => (false, 8),
        UInt16 => (false, 16),
        UInt32 => (false, 32),
        UInt64 => (false, 64),
        _ => return None,
    };
    Some(Integer { signed, bits })
}

fn holds_integer(to: &DataType, from: Integer) -> bool {
    // Floats hold all integers up to the bits of their mantissa.
    match to {
        Float32 => from.bits <= 24,
        Float64 => from.bits <= 53,
        _ => match integer(to) {
            Some(to) => from.bits <= to.bits && (to.signed || !from.signed),
            None => holds_decimal(to, from.digits(), 0),
        },
    }
}

fn holds_decimal(to: &DataType, integer_digits: i32, scale: i32) -> bool {
    match to {
        Decimal32(p, s) | Decimal64(p, s) | Decimal128(p, s) | Decimal256(p, s) => {
            let (precision, to_scale) = (i32::from(*p), i32::from(*s));
            scale <= to_scale && integer_digits <= precision - to_scale
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widenings_are_lossless() {
        for (from, to) in [
            (Int32, Int64),
            (UInt32, Int64),
            (UInt8, UInt64),
            (Int16, Float32),
            (Int32, Float64),
            (Float32, Float64),
            (Utf8, Utf8View),
            (Dictionary(Box::new(UInt16), Box::new(Utf8)), Utf8View),
            (Int64, Decimal128(19, 0)),
            (Decimal128(10, 2), Decimal128(12, 3)),
            (
                Timestamp(TimeUnit::Millisecond, None),
                Timestamp(TimeUnit::Microsecond, None),
            ),
            (
                Timestamp(TimeUnit::Microsecond, None),
                Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            ),
        ] {
            assert!(is_lossless(&from, &to), "{from} to {to}");
        }
    }

    #[test]
    fn others_are_not() {
        for (from, to) in [
            (Int64, Int32),
            (Int64, UInt64),
            (UInt64, Int64),
            (Int64, Float64),
            (Int32, Float32),
            (Float64, Float32),
            (Float64, Int64),
            (Utf8, Int64),
            (Int64, Utf8),
            (Int64, Decimal128(18, 0)),
            (Decimal128(10, 2), Decimal128(10, 3)),
            (
                Timestamp(TimeUnit::Nanosecond, None),
                Timestamp(TimeUnit::Microsecond, None),
            ),
            (
                Timestamp(TimeUnit::Microsecond, None),
                Timestamp(TimeUnit::Microsecond, Some("Europe/Berlin".into())),
            ),
            (Timestamp(TimeUnit::Second, None), Date32),
        ] {
            assert!(!is_lossless(&from, &to), "{from} to {to}");
        }
    }
}
