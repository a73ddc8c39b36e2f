//! Metrics of the hardware: one for each quantity of [`Readings`](crate::Readings), with its name, unit and attributes.

use elinvar_driver::{Quantity, Readings};

use super::catalog::{Metric, MetricKind};
use super::{MetricPoint, MetricValue};

/// The metric of a quantity.
pub(super) const fn metric(quantity: Quantity) -> Metric {
    Metric {
        name: quantity.name(),
        kind: if quantity.is_counter() { MetricKind::Counter } else { MetricKind::Gauge },
        unit: quantity.unit(),
        attributes: quantity.attributes(),
        meaning: quantity.meaning(),
    }
}

/// The values of a metric that are measured; none if it is no metric of the hardware.
pub(super) fn points(metric: &Metric, readings: &Readings) -> Vec<MetricPoint> {
    let of = readings.list.iter().filter(|reading| reading.quantity.name() == metric.name);
    let measured = of.filter_map(|reading| {
        let value = MetricValue::Number(*reading.value.as_ref().ok()?);
        Some(MetricPoint { attributes: reading.attributes.clone(), value })
    });
    measured.collect()
}
