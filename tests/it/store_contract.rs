//! What both stores promise: one suite, run against each. A case is an async function over a
//! [`Place`]; what only one of the stores can show stands in its own module. The cases know the
//! trait and the model, and nothing of how either store keeps things.

mod days;
mod embedded_only;
mod groups;
mod model;
mod months;
mod pages;
mod place;
mod races;
mod removal;
mod scan;
mod sensors;
mod settings;
mod walk;

macro_rules! contract {
    ($($room:ident::$case:ident,)*) => {
        mod embedded {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    super::$room::$case(&mut super::place::Embedded::new()).await;
                }
            )*
        }

        mod mongo {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    super::$room::$case(&mut super::place::Mongo::new().await).await;
                }
            )*
        }
    };
}

contract! {
    pages::values_names_and_times_come_back_as_they_were,
    pages::a_large_page_comes_back,
    pages::a_page_is_inserted_once,
    pages::an_append_needs_the_rev_it_knows,
    pages::a_replacement_needs_the_rev_it_knows,
    pages::a_bucket_overflows_page_by_page,
    pages::a_page_is_not_made_for_a_bucket_that_is_gone,
    pages::outcomes_stand_in_the_order_of_the_writes,
    pages::a_split_is_written_whole_or_not_at_all,
    pages::an_append_does_not_bring_a_deleted_page_back,
    pages::buckets_are_read_in_the_order_asked_for,
    pages::of_a_large_bucket_the_pages_are_read_that_are_asked_for,
    pages::a_reopened_store_has_everything,
    scan::a_scan_takes_the_whole_hours_of_a_half_open_range,
    scan::a_scan_stops_after_the_hour_that_makes_it_full,
    scan::a_scan_gives_what_its_projection_has_and_stops_where_it_may,
    scan::a_stored_summary_is_the_fold_over_its_page,
    scan::of_a_large_hour_only_the_pages_that_are_asked_for_are_read,
    scan::sensors_whose_keys_begin_alike_are_kept_apart,
    sensors::a_sensor_document_comes_back_as_it_was,
    sensors::a_sensor_document_needs_the_rev_it_knows,
    sensors::sensors_are_listed_in_key_order,
    sensors::outliers_are_listed_while_they_are_marked,
    sensors::databases_are_listed_by_name,
    sensors::databases_are_separate,
    sensors::a_store_that_answers_passes_its_check,
    walk::a_walk_meets_every_bucket_once_and_whole,
    walk::a_walk_tells_what_documents_say_of_themselves,
    walk::a_walk_goes_on_behind_what_is_written_meanwhile,
    walk::sensors_documents_are_walked_in_key_order,
    days::a_walk_meets_every_day_once_and_tells_what_it_says,
    days::a_day_comes_back_as_it_was,
    days::a_day_needs_the_rev_it_knows,
    days::of_expired_readings_the_summaries_stay,
    days::days_of_all_forms_stand_side_by_side,
    days::a_scan_takes_days_in_both_orders_and_stops_where_it_may,
    months::a_month_comes_back_as_it_was,
    months::a_month_needs_the_rev_it_knows,
    months::a_month_goes_when_one_of_its_days_is_written,
    days::chunks_and_hours_are_parts_of_their_day,
    days::buckets_are_listed_by_hour_and_single_pages_go_by_their_rev,
    removal::pages_without_readings_go,
    removal::a_removal_needs_the_rev_it_knows,
    removal::an_old_view_does_not_fit_a_page_made_anew,
    removal::buckets_of_some_sensors_and_hours_go,
    removal::sensor_documents_go,
    removal::a_dropped_database_is_gone_and_may_come_back,
    settings::settings_come_back_as_they_were,
    settings::settings_need_the_rev_they_know,
    races::writers_of_one_page_lose_nothing,
    races::writers_of_an_overflowing_bucket_store_every_time_once,
    model::random_writers_agree_with_a_plain_map,
}
