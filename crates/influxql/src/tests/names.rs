//! Columns are named as InfluxDB v1.6.7~rc0 names them.

use super::super::{Expr, column_names};
use super::select;

#[test]
fn columns_have_the_names_influxdb_gives_them() {
    for (columns, names) in [
        ("value", "value"),
        ("value, value", "value value_1"),
        ("value, value, value", "value value_1 value_2"),
        ("mean(value)", "mean"),
        ("mean(value), mean(usage)", "mean mean_1"),
        ("mean(value), max(usage), mean(value)", "mean max mean_1"),
        ("mean(value) + max(usage)", "mean_max"),
        ("value + usage", "value_usage"),
        ("value * 2", "value"),
        ("2 * value", "value"),
        ("(value)", "value"),
        ("(value + usage) * value", "value_usage_value"),
        ("-value", "value"),
        ("-mean(value)", "mean"),
        ("value AS a, usage AS a", "a a"),
        ("value AS usage, usage", "usage usage_1"),
        ("value AS value_1, value, value", "value_1 value value_2"),
        ("mean(value) AS mean, mean(usage)", "mean mean_1"),
        ("distinct value", "distinct"),
        ("distinct(value)", "distinct"),
        ("count(distinct(value))", "count"),
        ("percentile(value, 90), percentile(value, 50)", "percentile percentile_1"),
        ("top(value, host, 1)", "top host"),
        ("top(value, host, region, 1)", "top host region"),
        ("bottom(value, host, 1) AS b", "b host"),
        ("abs(value)", "abs"),
        ("abs(value) + usage", "abs_usage"),
        ("max(value), host", "max host"),
        ("max(value), host, host", "max host host_1"),
        ("value AS time, usage", "time usage"),
        ("value, value AS value", "value_1 value"),
        ("value, value AS value_1", "value value_1"),
        ("time, value", "value"),
        ("value AS \"a_b\"", "a_b"),
        ("mean(value) / mean(usage), mean(value) / mean(usage)", "mean_mean mean_mean_1"),
        ("1 + value + 2 + usage", "value_usage"),
    ] {
        let mut columns_of = select(&format!("select {columns} from cpu")).columns;
        columns_of.retain(|column| column.expr != Expr::reference("time"));
        assert_eq!(column_names(&columns_of).join(" "), names, "{columns}");
    }
}
