# Draws the samples of a soak: gnuplot -e "samples='bin/soak.csv'" test/torture/soak.gnuplot > docs/pictures/soak.svg
set datafile separator ','
set datafile missing ''
set terminal svg size 900,820 dynamic background rgb 'white' font 'sans-serif,12'
set multiplot layout 4,1
set lmargin 10
set rmargin 4
set grid ytics lc rgb '#dddddd'
set border 3 lc rgb '#888888'
set tics nomirror out
set key top right horizontal samplen 1
set xrange [0:*]
set yrange [0:*]
set style data lines
hours(column) = column / 3600.0

set title 'a second'
set yrange [0:450]
plot samples using (hours($1)):2 every ::1 title 'messages acknowledged' lc rgb '#1f6feb', \
     '' using (hours($1)):3 every ::1 title 'calls to receivers that answer' lc rgb '#2da44e'
set title 'from message to receiver, milliseconds'
set logscale y
set yrange [1:*]
plot samples using (hours($1)):5 every ::1 title 'p50' lc rgb '#1f6feb', \
     '' using (hours($1)):6 every ::1 title 'p99' lc rgb '#cf222e'
unset logscale y
set yrange [0:*]
set title 'memory of the process, MiB'
plot samples using (hours($1)):9 every ::1 notitle lc rgb '#8250df'
set title 'database, MiB'
set xlabel 'hours'
plot samples using (hours($1)):10 every ::1 notitle lc rgb '#bf8700'
