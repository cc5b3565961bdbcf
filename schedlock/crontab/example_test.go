package crontab_test

import (
	"fmt"
	"time"

	"github.com/etcdkit/etcdkit/schedlock/crontab"
)

// Each night at half past two, in a zone that has no such time in one night of the year, and two in another.
func ExampleParse() {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		panic(err)
	}
	nightly, err := crontab.Parse("30 2 * * *", berlin)
	if err != nil {
		panic(err)
	}
	for _, evening := range []time.Time{
		time.Date(2027, 3, 27, 20, 0, 0, 0, berlin),
		time.Date(2027, 10, 30, 20, 0, 0, 0, berlin),
	} {
		first := nightly.Next(evening)
		fmt.Println(first.Format("2 January 15:04 MST"), "and then", nightly.Next(first).Format("2 January 15:04 MST"))
	}

	_, err = crontab.Parse("30 2 * * 9", berlin)
	fmt.Println(err)
	// Output:
	// 28 March 03:00 CEST and then 29 March 02:30 CEST
	// 31 October 02:30 CEST and then 1 November 02:30 CET
	// crontab "30 2 * * 9": weekday "9": 9 is not between 0 and 7
}
