//! The contract of both stores: cases over a [`TestStore`] that run against each. They use only the trait and the model.

mod days;
mod embedded_only;
mod groups;
mod model;
mod months;
mod pages;
mod races;
mod removal;
mod scan;
mod sensors;
mod settings;
mod test_store;
mod walk;

macro_rules! contract {
    ($($room:ident::$case:ident,)*) => {
        mod embedded {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    super::$room::$case(&mut super::test_store::Embedded::new()).await;
                }
            )*
        }

        mod mongo {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    super::$room::$case(&mut super::test_store::Mongo::new().await).await;
                }
            )*
        }
    };
}

contract! {
    pages::values_names_and_times_round_trip,
    pages::a_large_page_round_trips,
    pages::a_page_is_inserted_once,
    pages::an_append_needs_the_current_rev,
    pages::a_replacement_needs_the_current_rev,
    pages::a_bucket_overflows_page_by_page,
    pages::a_deleted_bucket_gets_no_overflow_page,
    pages::outcomes_follow_the_order_of_the_writes,
    pages::a_split_is_atomic,
    pages::an_append_never_restores_a_deleted_page,
    pages::buckets_are_read_in_the_requested_order,
    pages::only_the_requested_pages_of_a_bucket_are_read,
    pages::a_reopened_store_keeps_everything,
    scan::a_scan_covers_a_half_open_range_of_hours,
    scan::a_scan_stops_after_the_hour_that_makes_it_full,
    scan::a_scan_returns_its_projection_and_stops_at_a_limit,
    scan::a_stored_summary_is_the_fold_over_its_page,
    scan::only_the_requested_pages_of_an_hour_are_read,
    scan::sensors_with_a_common_key_prefix_are_kept_apart,
    sensors::a_sensor_document_round_trips,
    sensors::a_sensor_document_needs_the_current_rev,
    sensors::sensors_are_listed_in_key_order,
    sensors::marked_outliers_are_listed,
    sensors::databases_are_listed_by_name,
    sensors::databases_are_separate,
    sensors::a_store_that_answers_passes_its_check,
    walk::a_walk_visits_every_bucket_once,
    walk::a_walk_reports_the_headers_of_documents,
    walk::a_walk_continues_past_concurrent_writes,
    walk::sensor_documents_are_walked_in_key_order,
    days::a_walk_visits_every_day_once,
    days::a_day_round_trips,
    days::a_day_needs_the_current_rev,
    days::summaries_of_expired_readings_stay,
    days::days_of_all_forms_coexist,
    days::a_scan_reads_days_in_both_orders_and_stops_at_a_limit,
    months::a_month_round_trips,
    months::a_month_needs_the_current_rev,
    months::writing_a_day_removes_its_month,
    days::chunks_and_hours_belong_to_their_day,
    days::buckets_are_listed_by_hour_and_pages_removed_by_rev,
    removal::empty_pages_are_removed,
    removal::a_removal_needs_the_current_rev,
    removal::an_old_view_does_not_match_a_recreated_page,
    removal::buckets_are_removed_by_sensor_and_hour,
    removal::sensor_documents_are_removed,
    removal::parts_of_days_are_removed_by_age,
    removal::a_dropped_database_can_be_recreated,
    settings::settings_round_trip,
    settings::settings_need_the_current_rev,
    races::writers_of_one_page_lose_nothing,
    races::writers_of_an_overflowing_bucket_store_every_time_once,
    model::random_writers_agree_with_a_plain_map,
}
