-- A job of about 380 MiB for sqlite3: orders of a shop in an in-memory database, indexed, joined and updated.
--
--     sqlite3 :memory: ".read examples/orders.sql"
--     uzswap run --ram 128M -- sqlite3 :memory: ".read examples/orders.sql"      # the same output
create table customers (id integer primary key, name text, city text);
create table orders (id integer primary key, customer integer, day integer, cents integer, note text);

with recursive n(i) as (select 1 union all select i + 1 from n where i < 50000)
insert into customers
select i, 'customer ' || i || ' of ' || (i * 7919 % 1000), 'city ' || (i * 31 % 97) from n;

with recursive n(i) as (select 1 union all select i + 1 from n where i < 1500000)
insert into orders
select i, 1 + i * 7919 % 50000, i % 365, 100 + i * 104729 % 90000,
       'parcel ' || i || ' left the sorting centre on day ' || (i % 365) || ' and was signed for by a neighbour'
from n;

create index by_customer on orders (customer, day);
create index by_day on orders (day, cents);

select city, count(*), sum(cents) from customers join orders on customer = customers.id
where customers.id % 7 = 3 group by city order by city limit 5;
select day, max(cents), min(cents) from orders where day between 100 and 130 group by day limit 5;
update orders set note = upper(note), cents = cents + 1 where id % 11 = 5;
select count(*), sum(cents), sum(length(note)) from orders where customer < 5000;
select sum(o.cents) from orders o join customers c on c.id = o.customer where c.city = 'city 42';
